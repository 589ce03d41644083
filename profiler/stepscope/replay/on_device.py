"""GPU runs: launches, streams, and who waits for whom.

Kineto records no dependency between streams unless asked to. So a wait is inferred: an activity whose launch was made and
whose stream was free, and that started only when something on another stream ended, waits for that. A collective's data
comes from what its thread launched before it; that edge is drawn whether or not there was anything to wait for.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from stepscope.replay.activities import Activities
from stepscope.replay.draft import Draft
from stepscope.replay.hosts import Threads
from stepscope.replay.joined import Ends
from stepscope.replay.network import Edge

_AT_ONCE = 20_000
"""What waits for another stream starts within so many ns of the end that it waits for."""
_BACK_TO_BACK = 2_000
"""A device needs no longer than this from the end of one activity on a stream to the start of the next."""
_LONGEST_LATENCY = 10_000
"""A launch call reaches an idle device within so many ns."""
_UNEXPLAINED = 3_000
"""A start that much later than all that is known to hold it back asks for a wait; less is the device's own time."""


class DeviceStep:
    """One step of one GPU recording: points of its device activities, and the edges between them."""

    def __init__(self, draft: Draft, owner: int, shift: int, activities: Activities) -> None:
        self._draft, self.owner, self._shift = draft, owner, shift
        self.activities = self._all = activities
        self.starts: list[int] = []
        """For each activity the point of its start; -1 for those that an earlier step launched."""
        self.ends: list[int] = []
        self._reached = [int(np.iinfo(np.int64).min)] * len(activities)
        """For each activity, until when the edges drawn so far hold it back."""

    def draw(self, threads: Threads, meetings: Mapping[int, Ends]) -> None:
        """Draw all activities; meetings: row of a collective to its points."""
        self._draw_points(meetings)
        self._draw_launches(threads)
        self._draw_streams()
        self._draw_sources(meetings)
        self._infer_waits()

    @property
    def drained(self) -> list[int]:
        """The ends of everything that the step launched."""
        return [self.ends[k] for k in np.flatnonzero(self._all.mine)]

    def _draw_points(self, meetings: Mapping[int, Ends]) -> None:
        a = self._all
        for k in range(len(a)):
            row, lane = int(a.row[k]), int(a.stream[k])
            start, end = int(a.start[k]) + self._shift, int(a.end[k]) + self._shift
            if not a.mine[k]:
                self.starts.append(-1)
                self.ends.append(self._draft.context(end, self.owner, lane))
            elif row in meetings:
                self.starts.append(meetings[row].arrival)
                self.ends.append(meetings[row].leave)
            else:
                self.starts.append(self._draft.point(start, self.owner, lane))
                self.ends.append(self._draft.point(end, self.owner, lane))
                self._edge(self.starts[k], self.ends[k], Edge.RUN, end - start, row)

    def _edge(self, source: int, target: int, kind: Edge, lag: int, row: int) -> bool:
        return self._draft.edge(source, target, kind, lag, self.owner, row)

    def _hold(self, k: int, source: int, kind: Edge, lag: int) -> None:
        """Let activity k start no earlier than so long after a point, and remember the latest of all such."""
        if self._edge(source, self.starts[k], kind, lag, int(self._all.row[k])):
            held = self._draft.time(source) + lag
            self._reached[k] = max(self._reached[k], min(held, self._draft.time(self.starts[k])))

    def _draw_launches(self, threads: Threads) -> None:
        latency = self._launch_latency()
        a = self._all
        for k in np.flatnonzero(a.mine).tolist():
            call = threads.at(int(a.thread[k]), int(a.launch[k]))
            self._hold(k, call, Edge.LAUNCH, latency)

    def _launch_latency(self) -> int:
        """From call to start where nothing else held an activity back: hardly more than the shortest seen."""
        a = self._all
        taken = (a.start - a.launch)[a.mine]
        taken = taken[taken >= 0]
        return min(_LONGEST_LATENCY, int(np.quantile(taken, 0.01))) if len(taken) else 0

    def _draw_streams(self) -> None:
        previous: dict[int, int] = {}
        for k, stream in enumerate(self._all.stream.tolist()):
            if stream in previous and self._all.mine[k]:
                self._hold(k, self.ends[previous[stream]], Edge.STREAM, _BACK_TO_BACK)
            if stream not in previous or self._all.end[k] >= self._all.end[previous[stream]]:
                previous[stream] = k

    def _draw_sources(self, meetings: Mapping[int, Ends]) -> None:
        """A collective comes after the last thing that its thread launched on another stream before it."""
        a = self._all
        computes = a.mine & ~np.isin(a.row, list(meetings))
        for k in np.flatnonzero(a.mine & ~computes).tolist():
            before = np.flatnonzero(computes & (a.thread == a.thread[k]) & (a.launch < a.launch[k]))
            if not len(before):
                continue
            last = int(before[np.argmax(a.launch[before])])
            if a.stream[last] != a.stream[k] and a.end[last] <= a.start[k]:
                self._hold(k, self.ends[last], Edge.READY, _BACK_TO_BACK)

    def _infer_waits(self) -> None:
        a = self._all
        by_end = np.argsort(a.end, kind="stable")
        ends = a.end[by_end]
        for k in np.flatnonzero(a.mine).tolist():
            start = int(a.start[k])
            held = self._reached[k] - self._shift
            if start - held <= _UNEXPLAINED:
                continue
            last = int(np.searchsorted(ends, start, side="right")) - 1
            found = self._waited_for(by_end, last, k, max(held, start - _AT_ONCE))
            if found is not None:
                lag = start - int(a.end[found])
                self._edge(self.ends[found], self.starts[k], Edge.WAIT, lag, int(a.row[found]))

    def _waited_for(self, by_end: NDArray[np.int64], last: int, k: int, since: int) -> int | None:
        """The activity on another stream that ended last before k started, if it ended after `since`."""
        a = self._all
        while last >= 0 and a.end[by_end[last]] > since:
            one = int(by_end[last])
            if a.stream[one] != a.stream[k]:
                return one
            last -= 1
        return None
