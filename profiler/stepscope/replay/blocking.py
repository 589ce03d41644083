"""Where the host of a GPU run was blocked: synchronising calls, copies that return when done, a full launch queue,
communication operators under blocking wait, and backward, which the autograd engine runs on a thread of its own.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from stepscope.replay.activities import Activities
from stepscope.replay.draft import Draft
from stepscope.replay.hosts import Threads
from stepscope.replay.network import Edge
from stepscope.replay.on_device import DeviceStep
from stepscope.replay.timeline import Timeline
from stepscope.trace import host
from stepscope.trace.columns import Category
from stepscope.trace.steps import Window

_SYNCHRONISES = re.compile(
    r"(cuda|hip)(Stream|Device|Event|Ctx)Synchronize.*|cu(Stream|Event|Ctx)Synchronize.*"
)
_WHOLE_DEVICE = re.compile(r"(cuda|hip)DeviceSynchronize.*|cuCtxSynchronize.*")
_QUEUE = 256
"""So many activities launched and not begun mean that the launch queue may be full (CUDA holds about 1024)."""
_LONG_LAUNCH = 100_000
_SHORTEST_WAIT = 50_000
_AT_ONCE = 100_000
"""A host that was blocked goes on within so many ns of the end that it waited for."""


class BlockedHost:
    """The blocked stretches of one step's host threads, drawn into a graph."""

    def __init__(
        self, draft: Draft, threads: Threads, timeline: Timeline, window: Window, device: DeviceStep
    ) -> None:
        self._draft, self._threads = draft, threads
        self._timeline, self._trace, self._window = timeline, timeline.trace, window
        self._device, self._all = device, device.activities

    def draw(self, main: int) -> None:
        """All of them; main: the thread whose step it is."""
        waiting = set(self._timeline.calls(self._window, _SYNCHRONISES).tolist())
        for row in sorted(waiting):
            self._synchronise(row)
        self._copies(waiting)
        self._full_queue()
        self._blocking_operators()
        for thread in np.unique(self._evaluates()[1]).tolist():
            if thread != main:
                self._handoffs(main, thread)

    def _synchronise(self, row: int) -> None:
        """A synchronising call ends no earlier than the work that it waits for.

        Without a record of it, right after a copy that is the copy's stream; else what ended last before the call did.
        """
        events = self._trace.events
        start, end = int(events.start[row]), int(events.end[row])
        sources = self._synchronised(row, start, end)
        if len(sources):
            self._wait(row, (start, end), sources)

    def _synchronised(self, row: int, start: int, end: int) -> NDArray[np.int64]:
        a = self._all
        before = (a.launch < start) & (a.end <= end)
        awaited = self._timeline.synchronisations.calls.get(row)
        if awaited is not None:
            meant = awaited.among(a)
            return _last_by_stream(a, meant[a.end[meant] <= end])
        if _WHOLE_DEVICE.match(self._trace.names[self._trace.events.name[row]]):
            return _last_by_stream(a, np.flatnonzero(before))
        copy = self._copy_just_before(row)
        if copy is not None:
            return np.flatnonzero(before & (a.stream == a.stream[copy]))[-1:]
        ended = np.flatnonzero(before & (a.end > start))
        return ended[np.argsort(a.end[ended], kind="stable")][-1:]

    def _copy_just_before(self, row: int) -> int | None:
        """The copy that this call's thread launched last, if it launched nothing after it."""
        a, events = self._all, self._trace.events
        mine = np.flatnonzero(
            (a.thread == self._timeline.threads[row]) & (a.launch < events.start[row]) & a.mine
        )
        if not len(mine):
            return None
        last = int(mine[np.argmax(a.launch[mine])])
        return last if events.category[a.row[last]] == Category.MEMCPY else None

    def _wait(self, row: int, call: tuple[int, int], sources: Iterable[int]) -> None:
        a = self._all
        thread = int(self._timeline.threads[row])
        found = [(int(self._device.ends[k]), int(a.end[k]), row) for k in sources]
        if max(end for _, end, _ in found) > call[0]:
            self._threads.waits(thread, call, found)
        else:
            point = self._threads.at(thread, call[1])
            for source, _, _ in found:
                self._draft.edge(source, point, Edge.BLOCK, 0, self._device.owner, row)

    def _copies(self, synchronising: set[int]) -> None:
        """A call whose own activity was over before it returned has waited for it."""
        a, events = self._all, self._trace.events
        for k in np.flatnonzero(a.mine & (a.end <= events.end[a.call])).tolist():
            call = int(a.call[k])
            if call not in synchronising:
                self._wait(call, (int(events.start[call]), int(events.end[call])), [k])

    def _full_queue(self) -> None:
        """A long launch with much launched and not begun waits for room: until the work before it has moved on."""
        a, events = self._all, self._trace.events
        mine = np.flatnonzero(a.mine)
        calls = a.call[mine]
        for k in mine[events.duration[calls] > _LONG_LAUNCH].tolist():
            start, end = int(events.start[a.call[k]]), int(events.end[a.call[k]])
            queued = (a.launch < start) & (a.start > start)
            ended = np.flatnonzero((a.launch < start) & (a.end > start) & (a.end <= end))
            if queued.sum() >= _QUEUE and len(ended):
                self._wait(int(a.call[k]), (start, end), ended[np.argsort(a.end[ended])][-1:])

    def _blocking_operators(self) -> None:
        """Inside a communication operator that holds its thread until a collective is over.

        A launch call that lasts so long found no room, and waits for no collective of its own.
        """
        trace, a = self._trace, self._all
        operators = self._timeline.communications
        operators = operators[trace.events.duration[operators] >= _SHORTEST_WAIT]
        spans = host.HostSpans(trace, operators)
        for thread in np.unique(self._timeline.threads[operators]).tolist():
            stretches = self._timeline.stretches(thread, self._window, _SHORTEST_WAIT)
            within = spans.holding(np.full(len(stretches.start), thread), stretches.start)
            for (start, end), held in zip(stretches, within.tolist(), strict=True):
                if held == host.NO_ROW or trace.events.end[held] < end:
                    continue
                ended = np.flatnonzero((a.launch <= start) & (a.end > start) & (a.end <= end) & a.mine)
                if len(ended) and end - a.end[ended].max() <= _AT_ONCE:
                    last = int(ended[np.argmax(a.end[ended])])
                    launching = a.call[(a.launch == start) & (a.thread == thread)]
                    about = launching[0] if len(launching) else a.row[last]
                    waited = (int(self._device.ends[last]), int(a.end[last]), int(about))
                    self._threads.waits(thread, (start, end), [waited])

    def _evaluates(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The rows of this step's nodes of backward, and their threads."""
        events = self._trace.events
        rows = self._timeline.evaluates
        rows = rows[(events.start[rows] >= self._window.start) & (events.start[rows] < self._window.end)]
        return rows, self._timeline.threads[rows]

    def _handoffs(self, main: int, thread: int) -> None:
        """While the engine's thread runs backward, the one that called it is blocked; it goes on when the last node ends."""
        events = self._trace.events
        rows, threads = self._evaluates()
        rows = rows[threads == thread]
        starts, ends = np.sort(events.start[rows]), np.sort(events.end[rows])
        idle = self._timeline.stretches(main, self._window, 1)
        first = np.searchsorted(starts, idle.start)
        last = np.searchsorted(ends, idle.end, side="right") - 1
        for k in np.flatnonzero(first <= last).tolist():
            self._handoff(
                main,
                thread,
                (int(idle.start[k]), int(idle.end[k])),
                (int(starts[first[k]]), int(ends[last[k]])),
            )

    def _handoff(self, main: int, thread: int, called: tuple[int, int], backward: tuple[int, int]) -> None:
        threads, owner = self._threads, self._device.owner
        begun, over = (threads.at(thread, time) for time in backward)
        call, returned = (threads.at(main, time) for time in called)
        self._draft.edge(call, begun, Edge.HANDOFF, backward[0] - called[0], owner)
        self._draft.edge(over, returned, Edge.HANDOFF, called[1] - backward[1], owner)
        threads.block(main, *called)
        threads.block(thread, self._idle_since(thread, backward[0]), backward[0])

    def _idle_since(self, thread: int, begun: int) -> int:
        """When the engine's thread ended what it did before this backward."""
        ends = self._trace.events.end[self._timeline.of_thread(thread, self._window)]
        before = ends[ends <= begun]
        return int(before.max()) if len(before) else begun


def _last_by_stream(a: Activities, places: NDArray[np.int64]) -> NDArray[np.int64]:
    last: dict[int, int] = {}
    for k in places.tolist():
        stream = int(a.stream[k])
        if stream not in last or a.end[k] >= a.end[last[stream]]:
            last[stream] = k
    return np.array(sorted(last.values()), dtype=np.int64)
