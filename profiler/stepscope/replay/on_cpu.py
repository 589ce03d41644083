"""CPU runs with gloo: who launches, which worker thread runs it, and where a training thread waits for it.

A training thread that waits is not recorded. It shows as a stretch between two events, outside every computing operator,
in which a collective that was launched before it ended, or just after which: a thread that waits goes on when the transfer is
over, and the worker's event ends a little later. DDP waits
for its buckets one after the other at the end of backward whether or not there was anything left to wait for; those edges
are drawn too, since a slower wire would make them matter.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from stepscope.replay.draft import Draft
from stepscope.replay.hosts import Threads
from stepscope.replay.joined import Ends
from stepscope.replay.network import Edge
from stepscope.replay.timeline import Timeline
from stepscope.trace import gloo, host
from stepscope.trace.columns import Trace
from stepscope.trace.recording import CollectiveOp, Phase, Recording
from stepscope.trace.steps import Window

_SHORTEST_WAIT = 20_000
"""Shorter stretches are the interpreter's own time between two operators."""
_HAND_OVER = 100_000
"""A worker takes a collective from its queue within so many ns if nothing keeps it busy."""
_AT_ONCE = 500_000
"""A thread that waited goes on so soon after the transfer's end; later only if it had waited for longer than that."""
_LATE_CLOSE = 2_500_000
"""A worker closes its event within so many ns of telling those who wait that the collective is over."""
_COPY_OUT = "torch.distributed.ddp.reducer::copy_bucket_to_grad"


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
        return _launching_thread(self._timeline, ends.op)

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
        buckets = [
            e for e in mine if e.op.gradient and e.op.kind == "all_reduce" and e.op.phase == Phase.BACKWARD
        ]
        for backward in _by_backward(self._recording, buckets):
            over = self._backward_over(thread, backward)
            if over is None:
                continue
            for ends, time in zip(backward, self._needed_at(thread, over, backward), strict=True):
                if time is not None and time >= ends.end:
                    point = self._threads.at(thread, time)
                    self._draft.edge(ends.leave, point, Edge.BLOCK, 0, owner, ends.op.row)

    def _backward_over(self, thread: int, buckets: Sequence[Ends]) -> int | None:
        """When the last node of the backward that launched these buckets ended."""
        events, work = self._trace.events, self._recording.compute
        launched = buckets[-1].op.launch
        others = work.start[(work.phase != Phase.BACKWARD) & (work.start > launched)]
        until = int(others[0]) if len(others) else self._window.end
        nodes = self._timeline.evaluates
        ends = events.end[nodes[self._timeline.threads[nodes] == thread]]
        ends = ends[(ends > launched) & (ends <= until)]
        return int(ends.max()) if len(ends) else None

    def _needed_at(self, thread: int, over: int, buckets: Sequence[Ends]) -> list[int | None]:
        """For each bucket, when the thread first needed it; None where that can't be told."""
        trace = self._trace
        copies = host.select(trace, lambda name: name == _COPY_OUT)
        start = trace.events.start[copies]
        mine = (self._timeline.threads[copies] == thread) & (start >= over) & (start < self._window.end)
        copies = copies[mine][np.argsort(start[mine], kind="stable")]
        if not len(copies):
            return [self._next_event(thread, over)] * len(buckets)
        sizes = [gloo.total_elements(trace.shapes.get(int(row))) for row in copies]
        return _first_copies(trace, copies.tolist(), sizes, [ends.op.elements for ends in buckets])

    def _next_event(self, thread: int, time: int) -> int:
        events, rows = self._trace.events, self._timeline.of_thread(thread, self._window)
        later = np.concatenate((events.start[rows], events.end[rows], [self._window.end]))
        return int(later[later > time].min())


def over_before_its_end(recording: Recording, timeline: Timeline, window: Window) -> dict[int, int]:
    """Rows of one step's collectives to when they were over, for those whose waiting thread went on before they ended.

    A worker tells who waits before it closes its own event, and under load it may be held up in between.
    """
    ops = [op for op in recording.collectives if op.step == window.number]
    threads = {thread for op in ops if (thread := _launching_thread(timeline, op)) is not None}
    over: dict[int, int] = {}
    for thread in sorted(threads):
        for start, end in timeline.stretches(thread, window, _SHORTEST_WAIT):
            if any(op.launch <= start and 0 <= end - over.get(op.row, op.end) <= _AT_ONCE for op in ops):
                continue
            slack = min(_LATE_CLOSE, (end - start) // 4)
            late = [op for op in ops if op.launch <= start and op.start < end < op.end <= end + slack]
            if late:
                first = min(late, key=lambda op: op.end)
                over.setdefault(first.row, end)
    return over


def _launching_thread(timeline: Timeline, op: CollectiveOp) -> int | None:
    """The thread whose operator launched a collective, if that was recorded."""
    rows = timeline.communications
    found = rows[timeline.events.start[rows] == op.launch]
    return int(timeline.threads[found[0]]) if len(found) else None


def _by_backward(recording: Recording, buckets: Sequence[Ends]) -> list[list[Ends]]:
    """Buckets of several backwards in one step, kept apart by the forward between them."""
    forward = recording.compute.start[recording.compute.phase == Phase.FORWARD]
    found: dict[int, list[Ends]] = {}
    for ends in buckets:
        found.setdefault(int(np.searchsorted(forward, ends.op.launch)), []).append(ends)
    return list(found.values())


def _first_copies(
    trace: Trace, copies: Sequence[int], sizes: Sequence[int | None], buckets: Sequence[int | None]
) -> list[int | None]:
    """When the first gradient of each bucket was copied out, by counting elements; buckets are copied in launch order."""
    starts: list[int | None] = []
    copied, wanted, bucket = 0, 0, 0
    for row, size in zip(copies, sizes, strict=True):
        if bucket < len(buckets) and copied == wanted:
            starts.append(int(trace.events.start[row]))
            if buckets[bucket] is None or size is None:
                break
            wanted += buckets[bucket] or 0
            bucket += 1
        copied += size or 0
    return starts + [None] * (len(buckets) - len(starts))
