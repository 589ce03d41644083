"""One rank's recording with every activity classified: what the audit works on.

Times are int64 ns from the file's earliest event, as in `stepscope.trace.columns`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from stepscope.trace.collectives import Dtype
from stepscope.trace.columns import Header, Trace, TraceWarning
from stepscope.trace.steps import NO_STEP, Steps

NO_TIME = int(np.iinfo(np.int64).min)
"""Launch time of an activity whose launch was not recorded."""


class Phase(IntEnum):
    """Where an activity's launch sits on the host."""

    FORWARD = 0
    BACKWARD = 1
    OPTIMIZER = 2
    UNKNOWN = 3


@dataclass(frozen=True, slots=True)
class Work:
    """Compute activities as columns of equal length, sorted by start."""

    start: NDArray[np.int64]
    end: NDArray[np.int64]
    launch: NDArray[np.int64]
    """When the host launched it, or NO_TIME; on a CPU the operator is its own launch."""
    phase: NDArray[np.uint8]
    step: NDArray[np.int32]

    def __len__(self) -> int:
        return len(self.start)

    def where(self, mask: NDArray[np.bool_] | NDArray[np.int64]) -> Work:
        """The activities that a mask of the same length, or their places, select."""
        return Work(self.start[mask], self.end[mask], self.launch[mask], self.phase[mask], self.step[mask])


@dataclass(frozen=True, slots=True)
class CollectiveOp:
    """One collective operation as one rank saw it."""

    row: int
    """Its event in the trace."""
    kind: str
    role: str
    name: str
    start: int
    end: int
    launch: int
    phase: Phase
    step: int = NO_STEP
    stream: int | None = None
    elements: int | None = None
    dtype: Dtype | None = None
    group: str | None = None
    group_size: int | None = None
    sequence: int | None = None

    @property
    def gradient(self) -> bool:
        """Whether it carries gradients (METRICS: gradient collective)."""
        return self.role == "gradient"

    @property
    def bytes(self) -> int | None:
        """Message size as nccl-tests counts it: the larger of input and output on one rank."""
        if self.elements is None or self.dtype is None:
            return None
        return self.elements * self.dtype.size


@dataclass(frozen=True, slots=True)
class GradientCopy:
    """One parameter's gradient arriving in its bucket: `end` is when the copy was finished on the device."""

    launch: int
    end: int
    step: int
    elements: int | None


@dataclass(frozen=True, slots=True)
class Recording:
    """One file: one rank and one recording window."""

    source: str
    header: Header
    base_ns: int
    device: str
    """ "cuda", "rocm", "cpu" or "none" (nothing that computes was recorded)."""
    steps: Steps
    compute: Work
    collectives: tuple[CollectiveOp, ...]
    """Sorted by start."""
    copies: tuple[GradientCopy, ...]
    """In launch order."""
    busy_start: NDArray[np.int64]
    busy_end: NDArray[np.int64]
    """All device activity, copies and memsets included."""
    communication_operators: int
    """Operators that launch a collective, whether or not its execution was recorded."""
    unknown_phase: int
    """Compute and communication without a launch record."""
    truncated: bool
    warnings: tuple[TraceWarning, ...]
    trace: Trace
    """What all this was found in."""

    @property
    def lanes(self) -> int:
        """How many collectives run at once: gloo has two worker threads, a communicator's stream is one lane."""
        return 2 if self.device == "cpu" else 1
