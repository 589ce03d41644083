"""Where the training steps begin and end on the host.

Windows come from `ProfilerStep#k`, else from optimizer steps, else from DDP's forward, else the whole file is one.
They are host times: the GPU's copy of `ProfilerStep` covers only the first kernels of backward (kineto issue 1022), and
the host runs ahead of the device, so a window holds what it launched and not what ran during it.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from stepscope.trace import host
from stepscope.trace.columns import Trace, TraceWarning

NO_STEP = -1
BY_PROFILER = "ProfilerStep"
"""What steps were found by where the training itself numbered them."""
_MARK = f"{BY_PROFILER}#"

_Named = tuple[str, int, int]


@dataclass(frozen=True, slots=True)
class Window:
    """One step on the host: [start, end) in ns; number is ProfilerStep's own, else a count from 0."""

    number: int
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Steps:
    """A file's windows, in order of time and without overlap, and what they were found by."""

    windows: tuple[Window, ...]
    found_by: str
    warnings: tuple[TraceWarning, ...] = ()

    def of(self, launches: NDArray[np.int64]) -> NDArray[np.int32]:
        """The number of the window that holds each launch time, or NO_STEP."""
        starts = np.array([w.start for w in self.windows], dtype=np.int64)
        ends = np.array([w.end for w in self.windows], dtype=np.int64)
        numbers = np.array([w.number for w in self.windows], dtype=np.int32)
        index = np.searchsorted(starts, launches, side="right") - 1
        inside = (index >= 0) & (launches < ends[np.maximum(index, 0)])
        return np.where(inside, numbers[np.maximum(index, 0)], NO_STEP).astype(np.int32)


def find_steps(trace: Trace) -> Steps:
    """The steps of a file, by the best mark it has; always at least one window."""
    for finder in (_by_profiler_step, _by_optimizer, _by_ddp_forward):
        found = finder(trace)
        if found is not None:
            return found
    last = int(trace.events.end.max()) if len(trace.events) else 0
    message = "no ProfilerStep, optimizer step or DDP forward found: the whole file counts as one step"
    return Steps((Window(0, 0, last + 1),), "file", (TraceWarning("no-step-marks", message),))


def _profiler_number(name: str) -> int | None:
    tail = name.removeprefix(_MARK)
    return int(tail) if tail != name and tail.isdecimal() and len(tail) < 10 else None


def _by_profiler_step(trace: Trace) -> Steps | None:
    rows = host.select(trace, lambda name: _profiler_number(name) is not None)
    events = trace.events
    windows: list[Window] = []
    numbers: set[int] = set()
    repeated = 0
    for row in rows[np.argsort(events.start[rows], kind="stable")]:
        number = _profiler_number(trace.names[events.name[row]])
        assert number is not None
        start = max(int(events.start[row]), windows[-1].end if windows else 0)
        if number in numbers:
            repeated += 1
        if number in numbers or events.end[row] <= start:
            continue
        numbers.add(number)
        windows.append(Window(number, start, int(events.end[row])))
    message = f"{repeated} step marks repeat the number of an earlier step: only the first of each counts"
    warnings = (TraceWarning("repeated-steps", message),) if repeated else ()
    return Steps(tuple(windows), BY_PROFILER, warnings) if windows else None


def _by_optimizer(trace: Trace) -> Steps | None:
    """Windows that end where an optimizer step ends; work after the last one belongs to a step not recorded whole."""
    outer = _outermost_spans(trace, host.select(trace, host.is_optimizer_step))
    if not outer:
        return None
    ends = [end for _, end in _rarest(outer)]
    message = "no ProfilerStep marks: steps are counted from one optimizer step to the next"
    return _between([0, *ends], "Optimizer.step", TraceWarning("steps-by-optimizer", message))


def _rarest(spans: list[_Named]) -> list[tuple[int, int]]:
    """Of several optimizers that step in turn, the spans of the one that steps least, the last of them if equal."""
    by_name: dict[str, list[tuple[int, int]]] = {}
    for name, start, end in spans:
        by_name.setdefault(name, []).append((start, end))
    return min(reversed(by_name.values()), key=len)


def _by_ddp_forward(trace: Trace) -> Steps | None:
    outer = _outermost_spans(trace, host.select(trace, host.is_ddp_forward))
    if not outer:
        return None
    borders = [*(start for _, start, _ in outer), int(trace.events.end.max()) + 1]
    message = (
        "no ProfilerStep and no optimizer step found: steps are counted from one DDP forward to the next"
    )
    return _between(borders, "DistributedDataParallel.forward", TraceWarning("steps-by-forward", message))


def _between(borders: list[int], found_by: str, warning: TraceWarning) -> Steps | None:
    """The windows from each border to the next; marks at one moment, of a broken file, have none between them."""
    spans = [(start, end) for start, end in pairwise(borders) if start < end]
    windows = tuple(Window(number, *span) for number, span in enumerate(spans))
    return Steps(windows, found_by, (warning,)) if windows else None


def _outermost_spans(trace: Trace, rows: NDArray[np.int64]) -> list[_Named]:
    """Name, start and end of the spans that lie in no other of them: an optimizer that steps an inner one steps once."""
    spans: list[_Named] = []
    events = trace.events
    for row in rows[np.lexsort((-events.end[rows], events.start[rows]))]:
        if not spans or events.start[row] >= spans[-1][2]:
            spans.append((trace.names[events.name[row]], int(events.start[row]), int(events.end[row])))
    return spans
