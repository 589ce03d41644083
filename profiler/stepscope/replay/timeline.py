"""One trace as the replay reads it: what is worked out once and used for each of its steps."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from stepscope import intervals as iv
from stepscope.replay.activities import Activities
from stepscope.replay.recorded import Synchronisations
from stepscope.trace import gloo, host
from stepscope.trace.columns import Category, Events, Trace
from stepscope.trace.steps import Window

_HOST = (Category.CPU_OP, Category.USER_ANNOTATION, Category.RUNTIME)


@dataclass(frozen=True, slots=True)
class Stretches:
    """Stretches of one host thread, in ns; columns of equal length."""

    start: NDArray[np.int64]
    end: NDArray[np.int64]

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return iter(zip(self.start.tolist(), self.end.tolist(), strict=True))


class ByStart:
    """Some events by their start, so that those of a window are found without looking at all the others."""

    def __init__(self, events: Events, rows: NDArray[np.int64]) -> None:
        self.rows = rows[np.argsort(events.start[rows], kind="stable")]
        self._start, self._end = events.start[self.rows], events.end[self.rows]
        self._reach = np.maximum.accumulate(self._end)
        """Until when this event or any before it lasts."""

    def begun_in(self, window: Window) -> NDArray[np.int64]:
        """Rows of the events that begin within a window, by start."""
        first, last = np.searchsorted(self._start, (window.start, window.end))
        return self.rows[first:last]

    def reaching_into(self, window: Window) -> NDArray[np.int64]:
        """Rows of the events of which a part lies in a window, by start."""
        first = np.searchsorted(self._reach, window.start, side="right")
        last = np.searchsorted(self._start, window.end)
        return self.rows[first:last][self._end[first:last] > window.start]


class Timeline:
    """A trace with its threads, nodes of backward, communication operators and device activities at hand."""

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self.events = trace.events
        self._of_thread: dict[int, ByStart] = {}

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
    def backward(self) -> host.HostSpans:
        """The spans of the nodes of backward."""
        return host.HostSpans(self.trace, self.evaluates)

    @cached_property
    def optimizer(self) -> host.HostSpans:
        """The spans of the optimizers' steps."""
        return host.HostSpans(self.trace, host.select(self.trace, host.is_optimizer_step))

    @cached_property
    def communicating(self) -> host.HostSpans:
        """The spans of the communication operators and annotations."""
        return host.HostSpans(self.trace, self.communications)

    @cached_property
    def activities(self) -> Activities:
        """All device activities."""
        return Activities.of(self.trace)

    @cached_property
    def synchronisations(self) -> Synchronisations:
        """Who waited for what, where that was recorded."""
        return Synchronisations.of(self.trace)

    @cached_property
    def on_host(self) -> ByStart:
        """Operators, annotations and calls of the runtime."""
        return ByStart(self.events, np.flatnonzero(self.events.among(_HOST)))

    def calls(self, window: Window, wanted: re.Pattern[str]) -> NDArray[np.int64]:
        """Rows of the calls of the runtime that begin within a window and whose whole name is wanted, by start."""
        names = np.array([wanted.fullmatch(name) is not None for name in self.trace.names], dtype=np.bool_)
        begun = self.on_host.begun_in(window)
        meant = (self.events.category[begun] == Category.RUNTIME) & names[self.events.name[begun]]
        found: NDArray[np.int64] = begun[meant]
        return found

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
        """Rows of the host events of a thread that reach into a window, by start."""
        if thread not in self._of_thread:
            rows = self.on_host.rows
            self._of_thread[thread] = ByStart(self.events, rows[self.threads[rows] == thread])
        return self._of_thread[thread].reaching_into(window)

    def stretches(self, thread: int, window: Window, shortest: int) -> Stretches:
        """What a thread did not spend in a computing operator, cut at every start and end of what was recorded of it.

        shortest: in ns, at least 1.
        """
        rows, events = self.of_thread(thread, window), self.events
        borders = np.array((window.start, window.end))
        cuts = np.sort(np.concatenate((events.start[rows], events.end[rows], borders)))
        cuts = cuts[(cuts >= window.start) & (cuts <= window.end)]
        computing = rows[self._computing[rows]]
        busy = iv.union(events.start[computing], events.end[computing])
        start, end = cuts[:-1], cuts[1:]
        keep = (end - start >= shortest) & (iv.covered_within(busy, start, end) == 0)
        return Stretches(start[keep], end[keep])

    def main_thread(self, window: Window) -> int | None:
        """Whose step it is: the thread of the annotation that spans the window, else the one with most operators."""
        events, begun = self.events, self.on_host.begun_in(window)
        category = events.category[begun]
        whole = (events.start[begun] == window.start) & (events.end[begun] == window.end)
        spans = begun[whole & (category == Category.USER_ANNOTATION)]
        if len(spans):
            return int(self.threads[spans[0]])
        found, counts = np.unique(self.threads[begun[category == Category.CPU_OP]], return_counts=True)
        return int(found[np.argmax(counts)]) if len(found) else None
