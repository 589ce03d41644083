"""CPU runs with gloo: who launches, which worker thread runs it, and where a training thread waits for it.

A training thread that waits is not recorded. It shows as a stretch between two events, outside every computing operator,
in which a collective that was launched before it ended, or just after which: a thread that waits goes on when the transfer is
over, and the worker's event ends a little later. DDP waits
for its buckets one after the other at the end of backward whether or not there was anything left to wait for; those edges
are drawn too, since a slower wire would make them matter.
"""

from __future__ import annotations

from collections.abc import Sequence

from stepscope.replay import reducer
from stepscope.replay.draft import Draft
from stepscope.replay.hosts import Threads
from stepscope.replay.joined import Ends
from stepscope.replay.network import Edge
from stepscope.replay.timeline import Timeline
from stepscope.trace.recording import CollectiveOp, Recording
from stepscope.trace.steps import Window

_SHORTEST_WAIT = 20_000
"""Shorter stretches are the interpreter's own time between two operators."""
_HAND_OVER = 100_000
"""A worker takes a collective from its queue within so many ns if nothing keeps it busy."""
_AT_ONCE = 500_000
"""A thread that waited goes on so soon after the transfer's end; later only if it had waited for longer than that."""
_LATE_CLOSE = 2_500_000
"""A worker closes its event within so many ns of telling those who wait that the collective is over."""


class CpuStep:
    """One step of one CPU recording, drawn into a graph."""

    def __init__(
        self, draft: Draft, threads: Threads, recording: Recording, timeline: Timeline, window: Window
    ) -> None:
        self._draft, self._threads = draft, threads
        self._recording, self._timeline = recording, timeline
        self._trace, self._window = timeline.trace, window

    def draw(self, owner: int, mine: Sequence[Ends]) -> None:
        """Launches, worker threads and waits; mine: this rank's collectives of the step."""
        by_launch = sorted(mine, key=lambda ends: (ends.op.launch, ends.op.start))
        self._launches(owner, by_launch)
        self._workers(mine)
        for thread in sorted({thread for ends in mine if (thread := self._thread_of(ends)) is not None}):
            self._observed_waits(thread, by_launch)
            self._reducers_waits(owner, thread, by_launch)

    def _thread_of(self, ends: Ends) -> int | None:
        return launching_thread(self._timeline, ends.op)

    def _launches(self, owner: int, mine: Sequence[Ends]) -> None:
        for ends in mine:
            thread = self._thread_of(ends)
            if thread is not None:
                launch = self._threads.at(thread, ends.op.launch)
                self._draft.edge(launch, ends.arrival, Edge.LAUNCH, _HAND_OVER, owner, ends.op.row)

    def _workers(self, mine: Sequence[Ends]) -> None:
        """A worker runs one collective at a time; which of them ran it is kept as it was recorded."""
        threads = self._timeline.threads
        previous: dict[int, Ends] = {}
        for ends in sorted(mine, key=lambda ends: ends.op.start):
            worker = int(threads[ends.op.row])
            if worker in previous:
                self._draft.edge(previous[worker].leave, ends.arrival, Edge.STREAM, 0)
            previous[worker] = ends

    def _observed_waits(self, thread: int, mine: Sequence[Ends]) -> None:
        for start, end in self._timeline.stretches(thread, self._window, _SHORTEST_WAIT):
            ended = [e for e in mine if e.op.launch <= start < e.end <= end]
            if not ended:
                continue
            after = end - max(e.end for e in ended)
            if after <= max(_AT_ONCE, (end - start) // 2):
                waited = [(e.leave, e.end, e.op.row) for e in ended]
                self._threads.waits(thread, (start, end), waited)

    def _reducers_waits(self, owner: int, thread: int, mine: Sequence[Ends]) -> None:
        """DDP's wait for each bucket before its gradients are copied out, or for all of them where none are copied."""
        ends_of = {ends.op.row: ends for ends in mine}
        for buckets in reducer.buckets_of(self._recording, self._window):
            times = reducer.needed_at(self._recording, self._timeline, self._window, thread, buckets)
            for op, time in zip(buckets, times, strict=True):
                ends = ends_of.get(op.row)
                if ends is not None and time is not None and time >= ends.end:
                    point = self._threads.at(thread, time)
                    self._draft.edge(ends.leave, point, Edge.BLOCK, 0, owner, op.row)


def over_before_its_end(recording: Recording, timeline: Timeline, window: Window) -> dict[int, int]:
    """Rows of one step's collectives to when they were over, for those whose waiting thread went on before they ended.

    A worker tells who waits before it closes its own event, and under load it may be held up in between: by any time where
    DDP's copies tell, by a little where only a stretch without events does.
    """
    ops = [op for op in recording.collectives if op.step == window.number]
    threads = {thread for op in ops if (thread := launching_thread(timeline, op)) is not None}
    over: dict[int, int] = {}
    for thread in sorted(threads):
        needed = _needed_before_its_end(recording, timeline, window, thread)
        for start, end in timeline.stretches(thread, window, _SHORTEST_WAIT):
            if any(op.launch <= start and 0 <= end - over.get(op.row, op.end) <= _AT_ONCE for op in ops):
                continue
            late = [op for op in ops if op.launch <= start and op.start < end < op.end]
            close = min(_LATE_CLOSE, (end - start) // 4)
            late = [
                op for op in late if op.end <= end + close or 0 <= needed.get(op.row, -1) - end <= _AT_ONCE
            ]
            if late:
                first = min(late, key=lambda op: op.end)
                over.setdefault(first.row, end)
        over = needed | over
    return over


def _needed_before_its_end(
    recording: Recording, timeline: Timeline, window: Window, thread: int
) -> dict[int, int]:
    """Rows of the buckets whose gradients were copied out before the bucket's event had ended, to when that was."""
    found: dict[int, int] = {}
    for buckets in reducer.buckets_of(recording, window):
        copied = reducer.copied_at(recording, timeline, window, thread, buckets)
        for op, time in zip(buckets, copied, strict=False):
            if time is not None and op.start < time < op.end:
                found[op.row] = time
    return found


def launching_thread(timeline: Timeline, op: CollectiveOp) -> int | None:
    """The thread whose operator launched a collective, if that was recorded."""
    rows = timeline.communications
    found = rows[timeline.events.start[rows] == op.launch]
    return int(timeline.threads[found[0]]) if len(found) else None
