"""The traces that were audited, with what the audit found as tracks beside them.

Chrome's trace format, which ui.perfetto.dev and chrome://tracing open. Of one file, every event stays as it is. Several
files become one: their processes are told apart, and their times follow the first host's clock.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import BinaryIO

import msgspec

from stepscope.audit.result import Audit, Rank
from stepscope.errors import InputError
from stepscope.names import as_path
from stepscope.trace.raw import base_time, raw_trace
from stepscope_reports.perfetto.moving import Mover, Processes, clock_of
from stepscope_reports.perfetto.tracks import tracks_of

_MARK = b'{"stepscopeTracks": {"traces": %d, "stepscope": %s}'
"""The document's first field, by which such a file is told from a recording (`stepscope.trace.discover`)."""

_OF_ONE_RANK = ("distributedInfo", "baseTimeNanoseconds")
"""Fields around the events that do not hold for several files together."""

_BETWEEN = b",\n"


def render(audit: Audit, stream: BinaryIO) -> None:
    """Write the traces and the tracks as one JSON document. InputError where a trace is gone or can't be read."""
    for rank in audit.ranks:
        if not as_path(rank.source).is_file():
            why = "is in a store, copy it here first" if "://" in rank.source else "is not there any more"
            raise InputError(f"{rank.source}: the trace {why}; this report is the trace and tracks on it")
    bases = [base_time(as_path(rank.source)) for rank in audit.ranks]
    stream.write(_MARK % (len(audit.ranks), msgspec.json.encode(audit.stepscope)))
    if len(audit.ranks) == 1:
        _one(audit, bases[0], stream)
    else:
        _several(audit, bases, stream)
    stream.write(b"}\n")


def _one(audit: Audit, base: int, stream: BinaryIO) -> None:
    """The file's own fields and events as they are, and the tracks behind its events."""
    (rank,) = audit.ranks
    with raw_trace(as_path(rank.source)) as trace:
        _write_fields(trace.head, stream)
        _open_events(stream)
        for events in trace.events:
            stream.write(_BETWEEN.join(events) + _BETWEEN)
        _close_events(tracks_of(audit, rank, 0, clock_of(audit, rank, base)), stream)
        _write_fields(trace.tail(), stream)


def _several(audit: Audit, bases: Sequence[int], stream: BinaryIO) -> None:
    processes = Processes()
    tracks: list[bytes] = []
    for index, (rank, base) in enumerate(zip(audit.ranks, bases, strict=True)):
        clock = clock_of(audit, rank, bases[0])
        with raw_trace(as_path(rank.source)) as trace:
            if index == 0:
                shared = {name: value for name, value in trace.head.items() if name not in _OF_ONE_RANK}
                _write_fields(shared | {_OF_ONE_RANK[1]: msgspec.Raw(b"%d" % base)}, stream)
                _open_events(stream)
            mover = Mover(index, _name_of(rank, index), base, clock, processes)
            for events in trace.events:
                stream.write(_BETWEEN.join(map(mover.move, events)) + _BETWEEN)
        tracks += tracks_of(audit, rank, index, clock)
    _close_events(tracks, stream)


def _name_of(rank: Rank, index: int) -> str:
    return f"rank {rank.rank}" if rank.rank is not None else f"file {index}"


def _write_fields(fields: dict[str, msgspec.Raw], stream: BinaryIO) -> None:
    for name, value in fields.items():
        stream.write(_BETWEEN + msgspec.json.encode(name) + b": " + bytes(value))


def _open_events(stream: BinaryIO) -> None:
    stream.write(_BETWEEN + b'"traceEvents": [\n')


def _close_events(tracks: Iterable[bytes], stream: BinaryIO) -> None:
    """The tracks come last, so that no comma is left over."""
    stream.write(_BETWEEN.join(tracks) + b"\n]")
