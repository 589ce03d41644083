"""What the reader hands on: one rank's trace as columns.

Times are int64 nanoseconds from the earliest event of the file; `base_ns` is that event's time since the epoch.
Names are interned: `name` holds indices into `Trace.names`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from stepscope.trace.frames import Frames

NO_ID = -1
"""Value of `correlation` and `stream` where the event has none."""


class Category(IntEnum):
    """The event categories that are kept; all others (flows, GPU annotations) are dropped, Python's are `Trace.frames`."""

    CPU_OP = 0
    USER_ANNOTATION = 1
    RUNTIME = 2
    """cuda_runtime, cuda_driver and their older and ROCm spellings: what launches device work."""
    KERNEL = 3
    MEMCPY = 4
    MEMSET = 5
    CUDA_SYNC = 6
    OVERHEAD = 7


def thread_numbers(pid: NDArray[np.int64], tid: NDArray[np.int64]) -> NDArray[np.int64]:
    """One number for each (pid, tid)."""
    numbers: NDArray[np.int64] = pid * np.int64(1 << 33) + tid
    return numbers


@dataclass(frozen=True)
class Events:
    """Complete ("X") events, in the order of the file; all columns have the same length.

    Without slots, so that what is made of the columns is kept once somebody has asked for it.

    pid, tid: for device events the device and the stream as the file's rows name them; numeric strings are numbers,
    other strings get negative numbers of their own.
    """

    category: NDArray[np.uint8]
    name: NDArray[np.int32]
    start: NDArray[np.int64]
    duration: NDArray[np.int64]
    pid: NDArray[np.int64]
    tid: NDArray[np.int64]
    correlation: NDArray[np.int64]
    """Links a launch to its device activity; NO_ID where absent."""
    device: NDArray[np.int32]
    stream: NDArray[np.int64]

    @cached_property
    def end(self) -> NDArray[np.int64]:
        """start + duration."""
        return self.start + self.duration

    @cached_property
    def thread(self) -> NDArray[np.int64]:
        """One number that is equal for events of the same (pid, tid)."""
        return thread_numbers(self.pid, self.tid)

    @cached_property
    def on_host(self) -> NDArray[np.int64]:
        """Places of the operators and annotations, in the order of the file."""
        return np.flatnonzero(self.among((Category.CPU_OP, Category.USER_ANNOTATION)))

    @cached_property
    def linked_calls(self) -> NDArray[np.int64]:
        """Places of the calls of the runtime that have a correlation id, by that."""
        calls = np.flatnonzero((self.category == Category.RUNTIME) & (self.correlation != NO_ID))
        return calls[np.argsort(self.correlation[calls], kind="stable")]

    @cached_property
    def _by_name(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The places of `on_host` by name, and for each name where its own begin among them."""
        name = self.name[self.on_host]
        counts = np.bincount(name)
        # few names fit 16 bits, which numpy sorts several times as fast
        narrow = np.min_scalar_type(len(counts))
        order = np.argsort(name.astype(narrow), kind="stable")
        return self.on_host[order], np.concatenate(([0], np.cumsum(counts)))

    def __len__(self) -> int:
        return len(self.start)

    def on_host_named(self, names: Sequence[int]) -> NDArray[np.int64]:
        """Places of the operators and annotations that have one of some names, in the order of the file."""
        places, first = self._by_name
        runs = [places[first[name] : first[name + 1]] for name in names if name + 1 < len(first)]
        return np.sort(np.concatenate(runs), kind="stable") if runs else places[:0]

    def among(self, categories: Sequence[Category]) -> NDArray[np.bool_]:
        """Which events are of one of some categories."""
        wanted = np.zeros(len(Category), dtype=np.bool_)
        wanted[list(categories)] = True
        found: NDArray[np.bool_] = wanted[self.category]
        return found


@dataclass(frozen=True, slots=True)
class CommArguments:
    """A communication event's own account of itself (`record_param_comms` and the kernels it launched)."""

    collective: str | None = None
    elements_in: int | None = None
    elements_out: int | None = None
    dtype: str | None = None
    group_name: str | None = None
    group_description: str | None = None
    group_size: int | None = None
    group_ranks: tuple[int, ...] | None = None
    sequence: int | None = None


@dataclass(frozen=True, slots=True)
class Shapes:
    """`Input Dims` and `Input type` of an operator, decoded; nested lists are tensor lists."""

    dims: list[object]
    types: list[str]


@dataclass(frozen=True, slots=True)
class WaitedEvent:
    """The CUDA event that a synchronisation row waits for: on which stream, and by which call, it was recorded."""

    stream: int
    correlation: int
    """Of the `cudaEventRecord`."""


@dataclass(frozen=True, slots=True)
class TraceWarning:
    """Something about a file that the reader got past: code is stable, message is for people."""

    code: str
    message: str


@dataclass(frozen=True, slots=True)
class Header:
    """What the file says of the run it was recorded in; None or empty where it does not say."""

    rank: int | None = None
    world_size: int | None = None
    backend: str | None = None
    host: str | None = None
    groups: tuple[dict[str, object], ...] = ()
    """`pg_config` rows."""
    device_names: tuple[str, ...] = ()
    with_stack: bool = False
    record_shapes: bool = False


@dataclass(frozen=True, slots=True)
class Trace:
    """One file: one rank, one recording window."""

    source: str
    events: Events
    names: list[str]
    header: Header
    base_ns: int
    thread_names: dict[tuple[int, int], str] = field(default_factory=dict)
    """(pid, tid) to the name the operating system gave the thread."""
    comm_arguments: dict[int, CommArguments] = field(default_factory=dict)
    """Event index to its communication arguments, for the events that carry `Collective name`."""
    shapes: dict[int, Shapes] = field(default_factory=dict)
    """Event index to its shapes, kept only for communication ops, gloo spans, DDP's gradient copies and
    `AccumulateGrad` (their names are listed in `stepscope.trace.collectives`)."""
    copied_bytes: dict[int, int] = field(default_factory=dict)
    """Event index to the size of a copy."""
    waited_events: dict[int, WaitedEvent] = field(default_factory=dict)
    """Event index of a `cuda_sync` row to the event that it waits for, for those that wait for one."""
    frames: Frames = field(default_factory=Frames)
    """Calls of the script's own functions, where stacks were recorded."""
    truncated: bool = False
    """The file ends early, or its `Record Window End` marker is missing although Kineto wrote it."""
    warnings: tuple[TraceWarning, ...] = ()
