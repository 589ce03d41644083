"""A trace as what the reader takes from it, in one small file: what a rank sends where its trace stays behind.

Nothing that an audit reads is left out, so its result is the same, apart from the names of files. The columns are integers:
sorted times become differences, bytes of one place stand together, and deflate does the rest. Where Kineto's gzipped JSON takes
25 bytes an event this takes 2 to 5. No pickle, and nothing of a file is believed before it is checked.
"""

from __future__ import annotations

import os
import zlib
from typing import Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from stepscope.errors import InputError
from stepscope.trace.columns import (
    Category,
    CommArguments,
    Events,
    Header,
    Shapes,
    Trace,
    TraceWarning,
    WaitedEvent,
)
from stepscope.trace.files import TraceFile, reading_errors, reason
from stepscope.trace.frames import Frames

SUFFIX = ".columns"
MAGIC = b"stepscope.columns/1\n"
"""How the file begins."""

_MOST_FACTS = 256 << 20
"""Bytes of names and arguments that a file may hold when unpacked."""
_MOST_RATIO = 512
"""Times its own size that the columns of a file may take when unpacked; real ones take 15 to 60 times."""
_LATEST = 1 << 62
"""No time of a trace is as late, in ns."""


class _Column(NamedTuple):
    name: str
    kind: str
    rises: bool
    """Differences between neighbours are smaller than the values."""


_EVENTS = (
    _Column("category", "<u1", False),
    _Column("name", "<i4", False),
    _Column("start", "<i8", True),
    _Column("duration", "<i8", False),
    _Column("pid", "<i8", False),
    _Column("tid", "<i8", False),
    _Column("correlation", "<i8", True),
    _Column("device", "<i4", False),
    _Column("stream", "<i8", False),
)
_FRAMES = (
    _Column("name", "<i4", False),
    _Column("start", "<i8", True),
    _Column("end", "<i8", True),
    _Column("thread", "<i8", False),
)


class _Facts(msgspec.Struct, kw_only=True):
    """All of a Trace that is no column."""

    names: list[str]
    header: Header
    base_ns: int
    thread_names: list[tuple[int, int, str]]
    comm_arguments: dict[int, CommArguments]
    shapes: dict[int, Shapes]
    copied_bytes: dict[int, int]
    waited_events: dict[int, WaitedEvent]
    truncated: bool
    warnings: tuple[TraceWarning, ...]


class _Packed(msgspec.Struct, array_like=True):
    """What follows MAGIC, as msgpack."""

    events: int
    frames: int
    facts: bytes
    event_columns: list[bytes]
    frame_columns: list[bytes]


def pack(trace: Trace) -> bytes:
    """The trace as the content of a file, for `unpack`."""
    facts = _Facts(
        names=trace.names,
        header=trace.header,
        base_ns=trace.base_ns,
        thread_names=[(pid, tid, name) for (pid, tid), name in trace.thread_names.items()],
        comm_arguments=trace.comm_arguments,
        shapes=trace.shapes,
        copied_bytes=trace.copied_bytes,
        waited_events=trace.waited_events,
        truncated=trace.truncated,
        warnings=trace.warnings,
    )
    packed = _Packed(
        events=len(trace.events),
        frames=len(trace.frames.name),
        facts=zlib.compress(msgspec.msgpack.encode(facts)),
        event_columns=[_pressed(getattr(trace.events, column.name), column) for column in _EVENTS],
        frame_columns=[_pressed(getattr(trace.frames, column.name), column) for column in _FRAMES],
    )
    return MAGIC + msgspec.msgpack.encode(packed)


def is_packed(path: TraceFile) -> bool:
    """Whether a file begins as one that `pack` made. False where it cannot be read."""
    try:
        with path.open("rb") as file:
            return file.read(len(MAGIC)) == MAGIC
    except reading_errors():
        return False


def refuse_packed(path: TraceFile) -> None:
    """InputError for such a file, before whoever needs the events themselves takes it for damaged JSON."""
    if path.is_file() and is_packed(path):
        raise InputError(
            f"{path}: a gathered recording, which keeps what an audit reads and no trace events; record with `stepscope run "
            "--gather --keep-traces`, and name the folder traces in the run directory"
        )


def unpack(path: TraceFile) -> Trace:
    """The trace in a file that `pack` made. InputError, in one line, where it cannot be read or is not whole."""
    try:
        content = path.read_bytes()
        packed = msgspec.msgpack.decode(content[len(MAGIC) :], type=_Packed)
        most = _MOST_RATIO * len(content)
        events = _events(packed, most)
        frames = Frames(**_columns(_FRAMES, packed.frame_columns, packed.frames, most))
        facts = msgspec.msgpack.decode(_inflated(packed.facts, _MOST_FACTS), type=_Facts)
        _check(events, frames, facts)
    except reading_errors() as error:
        raise InputError(f"cannot read {path}: {reason(error)}") from error
    except (msgspec.MsgspecError, zlib.error, ValueError, RecursionError) as error:
        raise InputError(f"{path}: damaged ({error}); gather it again") from error
    return Trace(
        source=os.fsencode(str(path)).decode("utf-8", "backslashreplace"),
        events=events,
        names=facts.names,
        header=facts.header,
        base_ns=facts.base_ns,
        thread_names={(pid, tid): name for pid, tid, name in facts.thread_names},
        comm_arguments=facts.comm_arguments,
        shapes=facts.shapes,
        copied_bytes=facts.copied_bytes,
        waited_events=facts.waited_events,
        frames=frames,
        truncated=facts.truncated,
        warnings=facts.warnings,
    )


def _pressed(values: NDArray[Any], column: _Column) -> bytes:
    """Bytes of one place after the other: the high ones of small numbers are all alike."""
    whole = np.ascontiguousarray(values, dtype=column.kind)
    if column.rises:
        whole = np.diff(whole, prepend=whole.dtype.type(0))
    return zlib.compress(whole.view(np.uint8).reshape(len(whole), whole.itemsize).T.tobytes())


def _events(packed: _Packed, most: int) -> Events:
    columns = _columns(_EVENTS, packed.event_columns, packed.events, most)
    if not _within(columns["category"], len(Category)):
        raise ValueError("a category that is not there")
    return Events(**columns)


def _columns(columns: tuple[_Column, ...], pressed: list[bytes], length: int, most: int) -> dict[str, Any]:
    row = sum(np.dtype(column.kind).itemsize for column in columns)
    if length < 0 or length * row > most or len(pressed) != len(columns):
        raise ValueError("its columns do not fit the file")
    return {column.name: _raised(one, column, length) for column, one in zip(columns, pressed, strict=True)}


def _raised(pressed: bytes, column: _Column, length: int) -> NDArray[Any]:
    """The opposite of `_pressed`."""
    kind = np.dtype(column.kind)
    flat = np.frombuffer(_inflated(pressed, length * kind.itemsize), np.uint8)
    if len(flat) != length * kind.itemsize:
        raise ValueError(f"its column {column.name} has another length")
    values = np.ascontiguousarray(flat.reshape(kind.itemsize, length).T).view(kind).reshape(length)
    return np.cumsum(values, dtype=kind) if column.rises else values


def _inflated(pressed: bytes, most: int) -> bytes:
    """ValueError for what is longer than `most`, or ends early."""
    machine = zlib.decompressobj()
    text = machine.decompress(pressed, most + 1)
    if len(text) > most or not machine.eof:
        raise ValueError("a part of it is too long or cut off")
    return text


def _check(events: Events, frames: Frames, facts: _Facts) -> None:
    """ValueError for what no reader of a trace would have made: places that are not there, times that cannot be."""
    rows = [*facts.comm_arguments, *facts.shapes, *facts.copied_bytes, *facts.waited_events]
    numbers = [facts.base_ns, *facts.copied_bytes.values()]
    numbers += [number for one in facts.waited_events.values() for number in (one.stream, one.correlation)]
    numbers += [number for pid, tid, _ in facts.thread_names for number in (pid, tid)]
    sound = (
        len(events) > 0
        and _within(events.name, len(facts.names))
        and _within(frames.name, len(facts.names))
        and all(0 <= row < len(events) for row in rows)
        and all(-_LATEST < number < _LATEST for number in numbers)
        and all(_within(times, _LATEST) for times in (events.start, events.duration, events.end))
    )
    if not sound:
        raise ValueError("its parts do not fit together")


def _within(values: NDArray[Any], limit: int) -> bool:
    return not len(values) or bool((values.min() >= 0) and (values.max() < limit))
