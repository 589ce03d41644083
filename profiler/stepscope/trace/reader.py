"""Reads one Kineto trace file into columns, in bounded memory.

The file is inflated in a thread, cut into pieces between events, and each piece is decoded into rows that live only
until their columns are taken. See `chunks`, `pieces`, `rows` and `gather`, in this order.
"""

from __future__ import annotations

import os
from contextlib import closing
from dataclasses import dataclass, replace

import numpy as np

from stepscope.errors import InputError
from stepscope.trace.chunks import ahead, blocks, text_bytes
from stepscope.trace.columns import NO_ID, Category, Events, Header, Trace, TraceWarning
from stepscope.trace.files import TraceFile, located, reading_errors
from stepscope.trace.gather import Gathered, Gatherer, Merged, merge
from stepscope.trace.header import rank_from_name, read_header
from stepscope.trace.helper import Helper, HelperFailed
from stepscope.trace.mend import Repairs
from stepscope.trace.packed import is_packed, unpack
from stepscope.trace.pieces import PIECE_BYTES, Pieces
from stepscope.trace.rows import RowDecoder
from stepscope.trace.times import InexactTimes

_LARGE_BYTES = 64 << 20
"""Text from which on a second process, which takes a fifth of a second to start, pays."""


def read(path: TraceFile | str, *, helper: bool | None = None) -> Trace:
    """The trace in a file: Kineto JSON, plain or gzip, whole or cut off; or the columns of one that was gathered.

    helper: whether a second process helps to decode; None: where it pays. What the reader got past is in `Trace.warnings`.
    InputError, in one line, where the file cannot be read, is no trace, or holds no whole event.
    """
    file = located(path)
    if file.is_fifo():
        raise InputError(f"{path}: a pipe can't be read twice; save the trace to a file first")
    if is_packed(file):
        return unpack(file)
    try:
        return read_in_pieces(file, PIECE_BYTES, helper=helper)
    except RecursionError as error:
        raise InputError(f"{path}: nested too deeply to be a Kineto trace") from error


def read_in_pieces(path: TraceFile, piece_bytes: int, *, helper: bool | None = None) -> Trace:
    """`read` with the size of the pieces chosen, and whether a second process helps (None: where it pays)."""
    exact, by_external_id = False, False
    helping = _helper_pays(path) if helper is None else helper
    while True:
        decoder = RowDecoder(exact_times=exact, link_by_external_id=by_external_id)
        try:
            contents = (
                _contents_with_help(path, piece_bytes) if helping else _contents(path, piece_bytes, decoder)
            )
        except HelperFailed:
            helping = False
            continue
        except InexactTimes:
            helping, exact = False, True
            continue
        if by_external_id or not _lacks_links(contents.merged.events):
            return _trace(path, contents, by_external_id=by_external_id)
        helping, by_external_id = False, True


@dataclass(frozen=True, slots=True)
class _Contents:
    """One pass over a file."""

    gathered: Gathered
    merged: Merged
    pieces: Pieces
    repairs: Repairs


def _helper_pays(path: TraceFile) -> bool:
    try:
        return (os.cpu_count() or 1) > 1 and text_bytes(path) >= _LARGE_BYTES
    except reading_errors():
        return False


def _contents(
    path: TraceFile, piece_bytes: int, decoder: RowDecoder, helper: Helper | None = None
) -> _Contents:
    repairs = Repairs()
    gatherer = Gatherer(decoder)
    with closing(ahead(blocks(path))) as text:
        offer = helper.offer if helper else None
        pieces = Pieces(str(path), text, decoder.decode, repairs, piece_bytes, offer)
        for rows in pieces:
            if rows is None:
                gatherer.leave_place()
            else:
                gatherer.add(rows)
    gathered = gatherer.gathered
    if helper:
        gathered.absorb(helper.gathered())
    return _Contents(gathered, merge([part for part in gathered.parts if part is not None]), pieces, repairs)


def _contents_with_help(path: TraceFile, piece_bytes: int) -> _Contents:
    """The same with a second process. HelperFailed where that saw anything but plain pieces: read alone, then."""
    with closing(Helper()) as helper:
        return _contents(path, piece_bytes, RowDecoder(), helper)


def _lacks_links(events: Events) -> bool:
    """Whether the file has launches and device activities and none of them has a correlation id."""
    kinds = np.unique(events.category)
    return bool(
        Category.RUNTIME in kinds and Category.KERNEL in kinds and (events.correlation == NO_ID).all()
    )


def _trace(path: TraceFile, contents: _Contents, *, by_external_id: bool) -> Trace:
    gathered, merged = contents.gathered, contents.merged
    if not len(merged.events):
        raise InputError(f"{path}: {_nothing_whole(contents)}")
    header, base_ns = read_header(contents.pieces.header)
    warnings = [*_warnings(contents), *_link_warnings(by_external_id, merged.events)]
    if header.rank is None:
        header = replace(header, rank=rank_from_name(path))
        warnings.append(_rank_warning(header))
    return Trace(
        # a name may be any bytes, a result is UTF-8
        source=os.fsencode(str(path)).decode("utf-8", "backslashreplace"),
        events=merged.events,
        names=list(gathered.names),
        header=header,
        base_ns=(base_ns or 0) + merged.earliest,
        thread_names=gathered.thread_names,
        comm_arguments=merged.comm_arguments,
        shapes=merged.shapes,
        copied_bytes=merged.copied_bytes,
        waited_events=merged.waited_events,
        frames=merged.frames,
        truncated=contents.pieces.truncated,
        warnings=tuple(warnings),
    )


def _nothing_whole(contents: _Contents) -> str:
    if contents.pieces.truncated:
        return "cut off before the first whole event; record it again or copy it again"
    return "holds no timed events; expected a Kineto trace of a step (was anything recorded?)"


def _warnings(contents: _Contents) -> list[TraceWarning]:
    repairs, gathered, truncated = contents.repairs, contents.gathered, contents.pieces.truncated
    unreadable, negative = repairs.events + gathered.unreadable_events, gathered.negative_durations
    found = [
        (truncated, "truncated", "the file ends early: only what is whole was read"),
        (
            not truncated and not gathered.window_end,
            "no-window-end",
            "no 'Record Window End' mark: the file was rewritten by a tool, or the recording was cut short",
        ),
        (
            contents.merged.no_categories,
            "no-categories",
            "no event says its category: the file was made without device activities, or a tool removed them",
        ),
        (
            repairs.values,
            "unreadable-values",
            f"{_count(repairs.values, 'value')} unreadable (such as Infinity)",
        ),
        (
            repairs.strings,
            "mended-text",
            f"{_count(repairs.strings, 'string')} with invalid characters, mended",
        ),
        (unreadable, "unreadable-events", f"{_count(unreadable, 'event')} unreadable, left out"),
        (
            negative,
            "negative-durations",
            f"{_count(negative, 'event')} with a negative duration, taken as 0",
        ),
    ]
    return [TraceWarning(code, message) for there, code, message in found if there]


def _link_warnings(by_external_id: bool, events: Events) -> list[TraceWarning]:
    if not by_external_id:
        return []
    if (events.correlation == NO_ID).all():
        message = "launches and device activities carry no correlation ids: phases are unknown"
        return [TraceWarning("no-correlation", message)]
    message = "no correlation ids: launches are linked to device activities by the operator's External id"
    return [TraceWarning("linked-by-external-id", message)]


def _rank_warning(header: Header) -> TraceWarning:
    if header.rank is None:
        return TraceWarning("rank-unknown", "neither the file nor its name says which rank it is")
    return TraceWarning(
        "rank-from-file-name", f"rank {header.rank} is taken from the file's name; the file has none"
    )


def _count(number: int, what: str) -> str:
    return f"one {what}" if number == 1 else f"{number} {what}s"
