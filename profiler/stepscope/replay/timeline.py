"""One trace as the replay reads it: what is worked out once and used for each of its steps."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from stepscope import intervals as iv
from stepscope.replay.activities import Activities
from stepscope.replay.recorded import Synchronisations
from stepscope.trace import gloo, host
from stepscope.trace.columns import Category, Trace
from stepscope.trace.steps import Window

_HOST = (Category.CPU_OP, Category.USER_ANNOTATION, Category.RUNTIME)


@dataclass(frozen=True, slots=True)
class Stretches:
    """Stretches of one host thread, in ns; columns of equal length."""

    start: NDArray[np.int64]
    end: NDArray[np.int64]

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return iter(zip(self.start.tolist(), self.end.tolist(), strict=True))


class Timeline:
    """A trace with its threads, nodes of backward, communication operators and device activities at hand."""

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self.events = trace.events

    @cached_property
    def threads(self) -> NDArray[np.int64]:
        """One number per event that is equal for events of the same thread."""
        return self.trace.events.thread

    @cached_property
    def evaluates(self) -> NDArray[np.int64]:
        """Rows of the nodes of backward."""
        return host.select(self.trace, host.is_evaluate_function)

    @cached_property
    def communications(self) -> NDArray[np.int64]:
        """Rows of the communication operators and annotations."""
        return host.select(self.trace, host.is_communication)

    @cached_property
    def activities(self) -> Activities:
        """All device activities."""
        return Activities.of(self.trace)

    @cached_property
    def synchronisations(self) -> Synchronisations:
        """Who waited for what, where that was recorded."""
        return Synchronisations.of(self.trace)

    @cached_property
    def _rows_of(self) -> dict[int, NDArray[np.int64]]:
        rows = np.flatnonzero(np.isin(self.events.category, _HOST))
        rows = rows[np.argsort(self.threads[rows], kind="stable")]
        found, first = np.unique(self.threads[rows], return_index=True)
        return dict(zip(found.tolist(), np.split(rows, first[1:]), strict=True))

    @cached_property
    def _computing(self) -> NDArray[np.bool_]:
        names = np.fromiter(map(gloo.is_compute, self.trace.names), np.bool_, len(self.trace.names))
        computing: NDArray[np.bool_] = names[self.events.name] & (self.events.category == Category.CPU_OP)
        return computing

    def computing_rows(self, *, on_device: bool, without: Sequence[int]) -> NDArray[np.int64]:
        """Rows of what computes, by start: kernels, or on a CPU the operators that are in no other."""
        if on_device:
            rows = np.flatnonzero(self.events.category == Category.KERNEL)
        else:
            spans = host.HostSpans(self.trace, np.flatnonzero(self._computing))
            rows = np.flatnonzero(self._computing)
            rows = rows[spans.holding(self.threads[rows], self.events.start[rows]) == rows]
        rows = rows[~np.isin(rows, without)]
        return rows[np.argsort(self.events.start[rows], kind="stable")]

    def of_thread(self, thread: int, window: Window) -> NDArray[np.int64]:
        """Rows of the host events of a thread that reach into a window."""
        rows = self._rows_of.get(thread, np.empty(0, dtype=np.int64))
        return rows[(self.events.end[rows] > window.start) & (self.events.start[rows] < window.end)]

    def stretches(self, thread: int, window: Window, shortest: int) -> Stretches:
        """What a thread did not spend in a computing operator, cut at every start and end of what was recorded of it."""
        rows, events = self.of_thread(thread, window), self.events
        borders = np.array((window.start, window.end))
        cuts = np.unique(np.concatenate((events.start[rows], events.end[rows], borders)))
        cuts = cuts[(cuts >= window.start) & (cuts <= window.end)]
        computing = rows[self._computing[rows]]
        busy = iv.union(events.start[computing], events.end[computing])
        start, end = cuts[:-1], cuts[1:]
        keep = (end - start >= shortest) & (iv.covered_within(busy, start, end) == 0)
        return Stretches(start[keep], end[keep])

    def main_thread(self, window: Window) -> int | None:
        """Whose step it is: the thread of the annotation that spans the window, else the one with most operators."""
        events = self.events
        spans = (events.start == window.start) & (events.end == window.end)
        spans &= events.category == Category.USER_ANNOTATION
        if spans.any():
            return int(self.threads[np.flatnonzero(spans)[0]])
        inside = (events.start >= window.start) & (events.start < window.end)
        found, counts = np.unique(
            self.threads[inside & (events.category == Category.CPU_OP)], return_counts=True
        )
        return int(found[np.argmax(counts)]) if len(found) else None
