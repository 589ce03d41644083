"""Gathers decoded rows into columns, piece by piece, so that a row lives no longer than its piece."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from itertools import compress, islice
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from stepscope.trace.arguments import (
    ON_DEVICE,
    comm_arguments,
    integer,
    links,
    row_number,
    row_numbers,
    shapes,
    waited_event,
)
from stepscope.trace.columns import Category, CommArguments, Events, Shapes, WaitedEvent, thread_numbers
from stepscope.trace.frames import PYTHON_FUNCTION, Frames, is_scripts, joined
from stepscope.trace.rows import Instant, Metadata, RowDecoder, Span
from stepscope.trace.times import LONGEST, nanoseconds, raw_nanoseconds

_MEMCPY, _CUDA_SYNC = int(Category.MEMCPY), int(Category.CUDA_SYNC)

_DROPPED = 255
_FRAME = 254
"""Category of Python's functions, which are kept apart; those of all other rows that are kept are below it."""
_UNCATEGORISED = 253
"""Category of events that say none, until the whole file was seen."""

# Kineto's ActivityType names (libkineto/include/ActivityType.h), lower case; the first profilers of
# torch 1.8 wrote capitalised single words.
_SPELLINGS = {
    "cpu_op": Category.CPU_OP,
    "operator": Category.CPU_OP,
    "user_annotation": Category.USER_ANNOTATION,
    "cuda_runtime": Category.RUNTIME,
    "cuda_driver": Category.RUNTIME,
    "runtime": Category.RUNTIME,
    "hip_runtime": Category.RUNTIME,
    "hip_driver": Category.RUNTIME,
    "xpu_runtime": Category.RUNTIME,
    "xpu_driver": Category.RUNTIME,
    "mtia_runtime": Category.RUNTIME,
    "privateuse1_runtime": Category.RUNTIME,
    "privateuse1_driver": Category.RUNTIME,
    "kernel": Category.KERNEL,
    "gpu_memcpy": Category.MEMCPY,
    "memcpy": Category.MEMCPY,
    "gpu_memset": Category.MEMSET,
    "memset": Category.MEMSET,
    "cuda_sync": Category.CUDA_SYNC,
    "xpu_sync": Category.CUDA_SYNC,
    "overhead": Category.OVERHEAD,
}


class _Categories(dict[str, int]):
    """Category by its name in the file; a row with any other name is dropped."""

    def __missing__(self, name: str) -> int:
        return _DROPPED


_CATEGORIES = _Categories(
    {
        **_SPELLINGS,
        **{name.capitalize(): category for name, category in _SPELLINGS.items()},
        "": _UNCATEGORISED,
        PYTHON_FUNCTION: _FRAME,
    }
)
_COMMUNICATES = (
    "c10d::",
    "gloo:",
    "nccl:",
    "record_param_comms",
    "torch::distributed::reducer",
    "torch.distributed.ddp.reducer",
    "torch::autograd::AccumulateGrad",
    "autograd::engine::evaluate_function: torch::autograd::AccumulateGrad",
)
"""Names, by their beginnings, of the operators whose communication arguments and shapes are kept."""

_THREAD_NAME = re.compile(r"thread -?\d+ \((.*)\)", re.DOTALL)
_WINDOW_END = "Record Window End"


_DTYPES = (np.uint8, np.int32, np.int64, np.int64, np.int64, np.int64, np.int64, np.int32, np.int64)
"""Types of the columns of Events, in its order."""

_T = TypeVar("_T")


class _Numbering(dict[str, int]):
    """Numbers the strings it is asked for, from 0, in the order of their first use."""

    def __missing__(self, text: str) -> int:
        number = self[text] = len(self)
        return number


@dataclass(slots=True)
class Part:
    """The columns of one piece and, by row, what is kept of its arguments."""

    columns: tuple[NDArray[Any], ...]
    comm_arguments: dict[int, CommArguments] = field(default_factory=dict)
    shapes: dict[int, Shapes] = field(default_factory=dict)
    copied_bytes: dict[int, int] = field(default_factory=dict)
    waited_events: dict[int, WaitedEvent] = field(default_factory=dict)
    frames: Frames = field(default_factory=Frames)
    """Times as the file counts them."""


@dataclass(slots=True)
class Gathered:
    """What was gathered from the pieces of a file, in their order; plain data, so that processes can exchange it."""

    parts: list[Part | None] = field(default_factory=list)
    """None for a piece that is being decoded elsewhere."""
    names: _Numbering = field(default_factory=_Numbering)
    thread_names: dict[tuple[int, int], str] = field(default_factory=dict)
    window_end: bool = False
    negative_durations: int = 0
    unreadable_events: int = 0

    def name_thread(self, thread: tuple[int, int], name: str) -> None:
        """A thread's name can change while it is recorded: the most telling one is kept."""
        if _telling(name) > _telling(self.thread_names.get(thread)):
            self.thread_names[thread] = name

    def absorb(self, other: Gathered) -> None:
        """Put another's parts, in order, in the places that were left for them."""
        renamed = np.array([self.names[name] for name in other.names], dtype=np.int32)
        parts = iter(other.parts)
        for place, part in enumerate(self.parts):
            if part is None:
                found = next(parts)
                assert found is not None
                category, name, *others = found.columns
                found.columns = (category, renamed[name], *others)
                found.frames = replace(found.frames, name=renamed[found.frames.name])
                self.parts[place] = found
        for thread, thread_name in other.thread_names.items():
            self.name_thread(thread, thread_name)
        self.window_end |= other.window_end
        self.negative_durations += other.negative_durations
        self.unreadable_events += other.unreadable_events


class Gatherer:
    """Turns the rows of pieces into columns, piece by piece."""

    def __init__(self, decoder: RowDecoder) -> None:
        self.gathered = Gathered()
        self._decoder = decoder
        self._communicates: list[bool] = []
        """For each name, whether its arguments are kept."""

    def leave_place(self) -> None:
        """Keep the place of a piece that another process decodes."""
        self.gathered.parts.append(None)

    def add(self, rows: list[Any]) -> None:
        """Take the rows of the next piece."""
        span_type, kinds = self._decoder.span_type, set(map(type, rows))
        if Metadata in kinds or Instant in kinds:
            self._add_others([row for row in rows if row.__class__ is Metadata or row.__class__ is Instant])
        spans: list[Span] = [row for row in rows if row.__class__ is span_type]
        category = np.frombuffer(bytes([_CATEGORIES[span.cat] for span in spans]), dtype=np.uint8)
        wanted = category < _FRAME
        if wanted.all():
            self.gathered.parts.append(self._part(spans, category))
            return
        calls = [span for span in compress(spans, category == _FRAME) if is_scripts(span.name)]
        part = self._part(list(compress(spans, wanted)), category[wanted])
        part.frames = self._frames(calls)
        self.gathered.parts.append(part)

    def _add_others(self, rows: list[Any]) -> None:
        for row in rows:
            if isinstance(row, Instant):
                self.gathered.window_end |= row.name == _WINDOW_END
            elif row.name == "thread_name" and isinstance(given := (row.args or {}).get("name"), str):
                wrapped = _THREAD_NAME.fullmatch(given)
                name = wrapped[1] if wrapped else given.strip()
                self.gathered.name_thread((row_number(row.pid), row_number(row.tid)), name)

    def _times(self, spans: list[Span]) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.bool_]]:
        """Starts and durations in ns, and which of them can be read."""
        given = [span.ts for span in spans]
        start, dated = raw_nanoseconds(given) if self._decoder.exact_times else nanoseconds(given, exact=True)
        duration, lasts = nanoseconds([span.dur for span in spans])
        return start, duration, dated & lasts & (duration <= LONGEST)

    def _frames(self, calls: list[Span]) -> Frames:
        start, duration, readable = self._times(calls)
        calls, start, duration = list(compress(calls, readable)), start[readable], duration[readable]
        names = self.gathered.names
        return Frames(
            name=np.fromiter([names[span.name] for span in calls], np.int32, len(calls)),
            start=start,
            end=start + np.maximum(duration, 0),
            thread=thread_numbers(
                row_numbers([span.pid for span in calls]), row_numbers([span.tid for span in calls])
            ),
        )

    def _part(self, spans: list[Span], category: NDArray[np.uint8]) -> Part:
        start, duration, readable = self._times(spans)
        if not readable.all():
            self.gathered.unreadable_events += int((~readable).sum())
            spans, category = list(compress(spans, readable)), category[readable]
            start, duration = start[readable], duration[readable]
        if len(duration) and duration.min() < 0:
            self.gathered.negative_durations += int((duration < 0).sum())
            duration = np.maximum(duration, 0)
        names = self.gathered.names
        name = np.fromiter([names[span.name] for span in spans], np.int32, len(spans))
        pid = row_numbers([span.pid for span in spans])
        tid = row_numbers([span.tid for span in spans])
        part = Part((category, name, start, duration, pid, tid, *links(spans, category)))
        self._keep_arguments(part, spans)
        return part

    def _keep_arguments(self, part: Part, spans: list[Span]) -> None:
        """Communication arguments and shapes of the rows that have them: device activities, operators of some names."""
        for text in islice(self.gathered.names, len(self._communicates), None):
            self._communicates.append(text.startswith(_COMMUNICATES))
        category, name = part.columns[:2]
        communicates = np.array(self._communicates, dtype=np.bool_)[name]
        for row in np.flatnonzero(category == _MEMCPY).tolist():
            if (args := spans[row].args) is not None and (size := integer(args.bytes)) is not None:
                part.copied_bytes[row] = size
        for row in np.flatnonzero(category == _CUDA_SYNC).tolist():
            if (args := spans[row].args) is not None and (event := waited_event(args)) is not None:
                part.waited_events[row] = event
        candidates = np.flatnonzero(communicates | ON_DEVICE[category]).tolist()
        given = [(row, args) for row in candidates if (args := spans[row].args) is not None]
        for row, arguments in [(row, args) for row, args in given if args.collective is not None]:
            part.comm_arguments[row] = comm_arguments(arguments)
        for row in np.flatnonzero(communicates).tolist():
            if (args := spans[row].args) is not None and (found := shapes(args)) is not None:
                part.shapes[row] = found


@dataclass(frozen=True, slots=True)
class Merged:
    """All pieces of a file together; times count from the earliest event."""

    events: Events
    earliest: int
    """Nanoseconds of the first event, as the file counts them."""
    comm_arguments: dict[int, CommArguments]
    shapes: dict[int, Shapes]
    copied_bytes: dict[int, int]
    waited_events: dict[int, WaitedEvent]
    frames: Frames
    no_categories: bool


def merge(parts: list[Part]) -> Merged:
    """The pieces of a file as one, which takes their columns from them.

    Events without a category are left out unless no event has one.
    """
    lengths = [len(part.columns[0]) for part in parts]
    columns = _joined_columns(parts)
    comm: dict[int, CommArguments] = {}
    kept_shapes: dict[int, Shapes] = {}
    copied: dict[int, int] = {}
    waited: dict[int, WaitedEvent] = {}
    before = 0
    for part, length in zip(parts, lengths, strict=True):
        comm.update((before + row, given) for row, given in part.comm_arguments.items())
        kept_shapes.update((before + row, given) for row, given in part.shapes.items())
        copied.update((before + row, size) for row, size in part.copied_bytes.items())
        waited.update((before + row, event) for row, event in part.waited_events.items())
        before += length
    without = columns[0] == _UNCATEGORISED
    no_categories = bool(len(without) and without.all())
    if no_categories:
        columns[0][:] = Category.CPU_OP
    elif without.any():
        columns = [column[~without] for column in columns]
        comm, kept_shapes = _renumbered(comm, ~without), _renumbered(kept_shapes, ~without)
        copied, waited = _renumbered(copied, ~without), _renumbered(waited, ~without)
    category, name, start, duration, pid, tid, correlation, device, stream = columns
    earliest = int(start.min()) if len(start) else 0
    start -= earliest
    events = Events(category, name, start, duration, pid, tid, correlation, device, stream)
    frames = joined([part.frames for part in parts], earliest)
    return Merged(events, earliest, comm, kept_shapes, copied, waited, frames, no_categories)


def _joined_columns(parts: list[Part]) -> list[NDArray[Any]]:
    """Each column of all parts, taken from them one by one: memory never holds all columns twice."""
    pieces = [list(part.columns) for part in parts]
    for part in parts:
        part.columns = ()
    return [
        np.concatenate([np.empty(0, dtype), *(piece.pop(0) for piece in pieces)]).astype(dtype, copy=False)
        for dtype in _DTYPES
    ]


def _renumbered(rows: dict[int, _T], keep: NDArray[np.bool_]) -> dict[int, _T]:
    position = np.cumsum(keep) - 1
    return {int(position[row]): value for row, value in rows.items() if keep[row]}


def _telling(name: str | None) -> int:
    """How much a thread's name says: torch's own (pt_gloo_runloop, pt_autograd_0) most, those of whole processes least.

    Threads inherit their parent's name until they get one, hence the many that are called python3 or pt_main_thread.
    """
    if name is None:
        return 0
    if name.startswith(("python", "pt_main_thread")):
        return 1
    return 3 if name.startswith("pt_") else 2
