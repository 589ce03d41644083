"""What the reader hands on: one rank's trace as columns.

Times are int64 nanoseconds from the earliest event of the file; `base_ns` is that event's time since the epoch.
Names are interned: `name` holds indices into `Trace.names`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import IntEnum

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


@dataclass(frozen=True, slots=True)
class Events:
    """Complete ("X") events, in the order of the file; all columns have the same length.

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
    end: NDArray[np.int64] = field(init=False)
    """start + duration; kept, as are the next two, since they are asked for again and again."""
    thread: NDArray[np.int64] = field(init=False)
    """One number that is equal for events of the same (pid, tid)."""
    on_host: NDArray[np.int64] = field(init=False)
    """Places of the operators and annotations, in the order of the file."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "end", self.start + self.duration)
        object.__setattr__(self, "thread", thread_numbers(self.pid, self.tid))
        host = self.among((Category.CPU_OP, Category.USER_ANNOTATION))
        object.__setattr__(self, "on_host", np.flatnonzero(host))

    def __len__(self) -> int:
        return len(self.start)

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
