"""Gathers decoded rows into columns, piece by piece, so that a row lives no longer than its piece."""

from __future__ import annotations

import re
from itertools import compress, islice
from typing import Any, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from stepscope.trace.columns import NO_ID, Category, CommArguments, Events, Shapes
from stepscope.trace.mend import Repairs
from stepscope.trace.rows import Arguments, Instant, Metadata, RowDecoder, Span
from stepscope.trace.times import nanoseconds, raw_nanoseconds

_DROPPED = 255
_UNCATEGORISED = 254
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
    }
)
_ON_DEVICE = np.zeros(256, dtype=np.bool_)
"""By category, whether it is an activity of the device."""
_ON_DEVICE[[Category.KERNEL, Category.MEMCPY, Category.MEMSET, Category.CUDA_SYNC]] = True


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
_LAST_NUMBER = re.compile(r"(?:^|\s)(-?\d+)\s*$")
_NO_ARGUMENTS = Arguments()
_WINDOW_END = "Record Window End"


_DTYPES = (np.uint8, np.int32, np.int64, np.int64, np.int64, np.int64, np.int64, np.int32, np.int64)
"""Types of the columns of Events, in its order."""
_START = 2

_T = TypeVar("_T")


class _Numbering(dict[str, int]):
    """Numbers the strings it is asked for, from 0, in the order of their first use."""

    def __missing__(self, text: str) -> int:
        number = self[text] = len(self)
        return number


class Gatherer:
    """The columns of one file while it is read; `add` takes the rows of a piece, `events` gives the columns."""

    def __init__(self, decoder: RowDecoder, repairs: Repairs) -> None:
        self.thread_names: dict[tuple[int, int], str] = {}
        self.comm_arguments: dict[int, CommArguments] = {}
        self.shapes: dict[int, Shapes] = {}
        self.window_end = False
        self.negative_durations = 0
        self.no_categories = False
        self.earliest = 0
        """Nanoseconds of the first event, as the file counts them."""
        self._decoder = decoder
        self._repairs = repairs
        self._names = _Numbering()
        self._threads = _Numbering()
        self._communicates: list[bool] = []
        """For each name, whether its arguments are kept."""
        self._parts: list[tuple[NDArray[Any], ...]] = []
        self._count = 0

    @property
    def names(self) -> list[str]:
        """Every name, at the index that the name column holds."""
        return list(self._names)

    def add(self, rows: list[Any]) -> None:
        """Take the rows of one piece, in the order of the file."""
        span_type, kinds = self._decoder.span_type, set(map(type, rows))
        if Metadata in kinds or Instant in kinds:
            self._add_others([row for row in rows if row.__class__ is Metadata or row.__class__ is Instant])
        spans: list[Span] = [row for row in rows if row.__class__ is span_type]
        category = np.frombuffer(bytes([_CATEGORIES[span.cat] for span in spans]), dtype=np.uint8)
        wanted = category != _DROPPED
        if not wanted.all():
            spans, category = list(compress(spans, wanted)), category[wanted]
        if spans:
            self._add_spans(spans, category)

    def _add_others(self, rows: list[Any]) -> None:
        for row in rows:
            if isinstance(row, Instant):
                self.window_end |= row.name == _WINDOW_END
            elif row.name == "thread_name":
                self._name_thread(row)

    def _add_spans(self, spans: list[Span], category: NDArray[np.uint8]) -> None:
        given = [span.ts for span in spans]
        start, readable = (
            raw_nanoseconds(given) if self._decoder.exact_times else nanoseconds(given, exact=True)
        )
        if not readable.all():
            self._repairs.events += int((~readable).sum())
            spans, category, start = list(compress(spans, readable)), category[readable], start[readable]
        duration, _ = nanoseconds([span.dur for span in spans])
        if len(duration) and duration.min() < 0:
            self.negative_durations += int((duration < 0).sum())
            duration = np.maximum(duration, 0)
        names = self._names
        name = np.fromiter([names[span.name] for span in spans], np.int32, len(spans))
        pid = self._numbers([span.pid for span in spans])
        tid = self._numbers([span.tid for span in spans])
        links = _links(spans, category)
        self._parts.append((category, name, start, duration, pid, tid, *links))
        self._keep_arguments(spans, category, name)
        self._count += len(spans)

    def _keep_arguments(
        self, spans: list[Span], category: NDArray[np.uint8], name: NDArray[np.int32]
    ) -> None:
        """Communication arguments and shapes of the rows that have them: device activities, operators of some names."""
        for text in islice(self._names, len(self._communicates), None):
            self._communicates.append(text.startswith(_COMMUNICATES))
        communicates = np.array(self._communicates, dtype=np.bool_)[name]
        for row in np.flatnonzero(communicates | _ON_DEVICE[category]).tolist():
            arguments = spans[row].args
            if arguments is None:
                continue
            if arguments.collective is not None:
                self.comm_arguments[self._count + row] = _comm_arguments(arguments)
            if communicates[row] and (shapes := _shapes(arguments)) is not None:
                self.shapes[self._count + row] = shapes

    def _name_thread(self, row: Metadata) -> None:
        """A thread's name can change while it is recorded: the name that a library gave beats the process's own."""
        given = (row.args or {}).get("name")
        if not isinstance(given, str):
            return
        thread = (self._number(row.pid), self._number(row.tid))
        wrapped = _THREAD_NAME.fullmatch(given)
        name = wrapped[1] if wrapped else given.strip()
        if _telling(name) > _telling(self.thread_names.get(thread)):
            self.thread_names[thread] = name

    def _numbers(self, values: list[Any]) -> NDArray[np.int64]:
        try:
            return np.fromiter(values, np.int64, len(values))
        except (TypeError, ValueError, OverflowError):
            return np.array([self._number(value) for value in values], dtype=np.int64)

    def _number(self, value: object) -> int:
        """A process or thread id as a number: itself, or one of its own for text that is none."""
        number = _integer(value)
        return -2 - self._threads[str(value)] if number is None else number

    def columns(self) -> Events:
        """Everything that was added; times count from the earliest. To be called once, at the end."""
        if not self._parts:
            return _as_events([np.empty(0, dtype=dtype) for dtype in _DTYPES])
        columns: list[NDArray[Any]] = []
        for index, dtype in enumerate(_DTYPES):
            columns.append(np.concatenate([part[index] for part in self._parts]).astype(dtype, copy=False))
        self._parts.clear()
        category = columns[0]
        without = category == _UNCATEGORISED
        if without.all():
            self.no_categories = True
            category[:] = Category.CPU_OP
        elif without.any():
            keep = ~without
            columns = [column[keep] for column in columns]
            self.comm_arguments = _renumbered(self.comm_arguments, keep)
            self.shapes = _renumbered(self.shapes, keep)
        start = columns[_START]
        self.earliest = int(start.min()) if len(start) else 0
        start -= self.earliest
        return _as_events(columns)


def _as_events(columns: list[NDArray[Any]]) -> Events:
    category, name, start, duration, pid, tid, correlation, device, stream = columns
    return Events(category, name, start, duration, pid, tid, correlation, device, stream)


def _renumbered(rows: dict[int, _T], keep: NDArray[np.bool_]) -> dict[int, _T]:
    position = np.cumsum(keep) - 1
    return {int(position[row]): value for row, value in rows.items() if keep[row]}


def _integer(value: object) -> int | None:
    """The value as an integer of 64 bits, or None."""
    if isinstance(value, str):
        try:
            value = int(value)
        except ValueError:
            return None
    if isinstance(value, int) and -(1 << 63) <= value < 1 << 63:
        return value
    return None


def _integers(values: list[Any]) -> NDArray[np.int64]:
    try:
        return np.fromiter(values, np.int64, len(values))
    except (TypeError, ValueError, OverflowError):
        return np.array(
            [NO_ID if (number := _integer(value)) is None else number for value in values], np.int64
        )


def _links(
    spans: list[Span], category: NDArray[np.uint8]
) -> tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.int64]]:
    """Correlation of launches and device activities; device and stream of the latter; NO_ID for all others."""
    correlation = np.full(len(spans), NO_ID, dtype=np.int64)
    linked = category != Category.CPU_OP
    correlation[linked] = _integers(
        [(span.args or _NO_ARGUMENTS).correlation for span in compress(spans, linked)]
    )
    device = np.full(len(spans), NO_ID, dtype=np.int32)
    stream = np.full(len(spans), NO_ID, dtype=np.int64)
    placed = _ON_DEVICE[category]
    if placed.any():
        rows = list(compress(spans, placed))
        arguments = [row.args or _NO_ARGUMENTS for row in rows]
        given = _places([given.device for given in arguments], [row.pid for row in rows])
        device[placed] = np.where(np.abs(given) < 1 << 31, given, NO_ID)
        stream[placed] = _places([given.stream for given in arguments], [row.tid for row in rows])
    return correlation, device, stream


def _places(arguments: list[Any], rows: list[Any]) -> NDArray[np.int64]:
    """Device or stream numbers: the argument or, where it is absent, the label of the row."""
    try:
        return np.array(arguments, dtype=np.int64)
    except (TypeError, ValueError, OverflowError):
        return np.array([_place(*pair) for pair in zip(arguments, rows, strict=True)], dtype=np.int64)


def _place(argument: object, row: object) -> int:
    """A row's label ("stream 7") ends with its number."""
    given = row if argument is None else argument
    if isinstance(given, str):
        last = _LAST_NUMBER.search(given)
        given = last[1] if last else None
    number = _integer(given)
    return NO_ID if number is None else number


def _comm_arguments(given: Arguments) -> CommArguments:
    return CommArguments(
        collective=given.collective,
        elements_in=_integer(given.elements_in),
        elements_out=_integer(given.elements_out),
        dtype=given.dtype,
        group_name=given.group_name,
        group_description=given.group_description,
        group_size=_integer(given.group_size),
        group_ranks=_ranks(given.group_ranks),
        sequence=_integer(given.sequence),
    )


def _ranks(given: str | list[Any] | None) -> tuple[int, ...] | None:
    """Ranks of a group, a list or its text; None where it is absent or, as for large groups, abbreviated."""
    try:
        if isinstance(given, str):
            return msgspec.json.decode(given, type=tuple[int, ...])
        return msgspec.convert(given, type=tuple[int, ...] | None)
    except msgspec.DecodeError:
        return None


def _shapes(given: Arguments) -> Shapes | None:
    if not bytes(given.dims):
        return None
    try:
        dims = msgspec.json.decode(given.dims, type=list[Any])
        types = msgspec.json.decode(given.types, type=list[str]) if bytes(given.types) else []
    except msgspec.DecodeError:
        return None
    return Shapes(dims, types)


def _telling(name: str | None) -> int:
    """How much a thread's name says: torch's own (pt_gloo_runloop, pt_autograd_0) most, those of whole processes least.

    Threads inherit their parent's name until they get one, hence the many that are called python3 or pt_main_thread.
    """
    if name is None:
        return 0
    if name.startswith(("python", "pt_main_thread")):
        return 1
    return 3 if name.startswith("pt_") else 2
