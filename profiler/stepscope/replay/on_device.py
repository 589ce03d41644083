"""GPU runs: launches, streams, and who waits for whom.

Where the profiler recorded who waits for which event (`recorded.py`), those waits are drawn, whether or not there was
anything to wait for. Elsewhere a wait is inferred: an activity whose launch was made and whose stream was free, and that
started only when something on another stream ended, waits for that; and a collective's data comes from what its thread
launched before it.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from stepscope.replay.activities import Activities
from stepscope.replay.draft import Column, Draft
from stepscope.replay.hosts import Threads
from stepscope.replay.joined import Ends
from stepscope.replay.network import Edge
from stepscope.replay.recorded import StreamWaits

_AT_ONCE = 20_000
"""What waits for another stream starts within so many ns of the end that it waits for."""
_LONGEST_REST = 2_000
"""A stream rests no longer than this between two activities that were both launched in time."""
_LONGEST_LATENCY = 10_000
"""A launch call reaches an idle device within so many ns."""
_UNEXPLAINED = 3_000
"""A start that much later than all that is known to hold it back asks for a wait; less is the device's own time."""


class DeviceStep:
    """One step of one GPU recording: points of its device activities, and the edges between them."""

    def __init__(self, draft: Draft, owner: int, shift: int, activities: Activities) -> None:
        self._draft, self.owner, self._shift = draft, owner, shift
        self.activities = self._all = activities
        self._starts = np.full(len(activities), -1, dtype=np.int64)
        self.ends = np.full(len(activities), -1, dtype=np.int64)
        """For each activity the point of its end."""
        self._held = np.full(len(activities), np.iinfo(np.int64).min, dtype=np.int64)
        """For each activity, until when the edges drawn so far hold it back; on the recording's clock."""
        self._rest = 0
        """How long a stream usually rests between two activities; ns."""

    def draw(self, threads: Threads, meetings: Mapping[int, Ends], waits: StreamWaits, begins: int) -> None:
        """Draw all activities; meetings: row of a collective to its points.

        waits: those that were recorded. begins: when the step's window does, on the recording's clock.
        """
        self._draw_points(meetings)
        if self._all.mine.all():
            self._draw_idle_device(begins)
        self._draw_launches(threads)
        self._draw_streams()
        told = self._draw_recorded(waits, meetings)
        self._draw_sources(meetings, told)
        self._infer_waits(told)

    @property
    def drained(self) -> list[int]:
        """The ends of everything that the step launched."""
        found: list[int] = self.ends[self._all.mine].tolist()
        return found

    def _draw_points(self, meetings: Mapping[int, Ends]) -> None:
        a = self._all
        shared = a.mine & np.isin(a.row, list(meetings))
        for k in np.flatnonzero(shared).tolist():
            ends = meetings[int(a.row[k])]
            self._starts[k], self.ends[k] = ends.arrival, ends.leave
        own = np.flatnonzero(a.mine & ~shared)
        self._starts[own] = self._draft.points(a.start[own] + self._shift, self.owner, a.stream[own])
        left = np.flatnonzero(~shared)
        self.ends[left] = self._draft.points(a.end[left] + self._shift, self.owner, a.stream[left])
        self._draft.context(self.ends[~a.mine])
        lasted = (a.end - a.start)[own]
        self._draft.edges(self._starts[own], self.ends[own], Edge.RUN, lasted, self.owner, a.row[own])

    def _draw_idle_device(self, begins: int) -> None:
        """Where no earlier work was recorded, the device had none left to do when the step began."""
        a = self._all
        streams, first = np.unique(a.stream, return_index=True)
        idle = self._draft.points(np.minimum(begins, a.start[first]) + self._shift, self.owner, streams)
        self._draft.context(idle)
        self._hold(first, idle, np.minimum(begins, a.start[first]), Edge.STREAM, 0)

    def _hold(self, which: Column, sources: Column, since: Column, kind: Edge, lag: int) -> None:
        """Let activities start no earlier than so long after some points, which came at `since`."""
        a = self._all
        gap = a.start[which] - since
        fits = gap >= 0
        which, sources, lags = which[fits], sources[fits], np.minimum(lag, gap[fits])
        self._draft.impossible += int((~fits).sum())
        self._draft.edges(sources, self._starts[which], kind, lags, self.owner, a.row[which])
        np.maximum.at(self._held, which, since[fits] + lags)

    def _draw_launches(self, threads: Threads) -> None:
        a, mine = self._all, np.flatnonzero(self._all.mine)
        calls = threads.at_all(a.thread[mine], a.launch[mine])
        self._hold(mine, calls, a.launch[mine], Edge.LAUNCH, self._launch_latency())

    def _launch_latency(self) -> int:
        """From call to start where nothing else held an activity back: hardly more than the shortest seen."""
        a = self._all
        taken = (a.start - a.launch)[a.mine]
        taken = taken[taken >= 0]
        return min(_LONGEST_LATENCY, int(np.quantile(taken, 0.01))) if len(taken) else 0

    def _draw_streams(self) -> None:
        """Each after the one before it on its stream; one that starts before that is over follows the last that is."""
        a = self._all
        pairs = [self._neighbours(np.flatnonzero(a.stream == stream)) for stream in np.unique(a.stream)]
        which, last = (
            (np.concatenate(side) for side in zip(*pairs, strict=True)) if pairs else (self.ends, self.ends)
        )
        queued = a.launch[which] <= a.end[last]
        gaps = (a.start[which] - a.end[last])[queued]
        if len(gaps):
            self._rest = min(_LONGEST_REST, int(np.quantile(gaps, 0.1, method="lower")))
        self._hold(which, self.ends[last], a.end[last], Edge.STREAM, self._rest)

    def _neighbours(self, on: Column) -> tuple[Column, Column]:
        """Of one stream's activities, those of the step and for each the one before it."""
        a = self._all
        over = on[np.argsort(a.end[on], kind="stable")]
        before = np.searchsorted(a.end[over], a.start[on], side="right") - 1
        follows = (before >= 0) & a.mine[on] & (over[np.maximum(before, 0)] != on)
        return on[follows], over[before[follows]]

    def _draw_recorded(self, waits: StreamWaits, meetings: Mapping[int, Ends]) -> frozenset[int]:
        """What was launched next on a stream that was told to wait comes after what it waits for; returns what that was."""
        a = self._all
        next_ = self._launched_before(waits.stream, waits.since, 1)
        source = self._launched_before(waits.source, waits.before)
        known = (next_ >= 0) & (source >= 0) & a.mine[next_]
        pairs = np.unique(np.stack((next_[known], source[known]), axis=1), axis=0)
        for k, one in pairs[np.argsort(a.end[pairs[:, 1]], kind="stable")].tolist():
            gap = int(a.start[k] - a.end[one])
            decisive = a.end[one] >= self._held[k] and gap <= _AT_ONCE
            lag = gap if decisive else min(gap, self._rest)
            kind, about = (Edge.READY, k) if int(a.row[k]) in meetings else (Edge.WAIT, one)
            row = int(a.row[about])
            if self._draft.edge(int(self.ends[one]), int(self._starts[k]), kind, lag, self.owner, row):
                self._held[k] = max(int(self._held[k]), int(a.end[one]) + lag)
        return frozenset(pairs[:, 0].tolist())

    def _launched_before(self, streams: Column, times: Column, further: int = 0) -> Column:
        """For each stream and time the place of what was launched last on it before then, or of so many further; else -1."""
        a, found = self._all, np.full(len(streams), -1, dtype=np.int64)
        for stream in np.unique(streams):
            on = np.flatnonzero(a.stream == stream)
            on = on[np.argsort(a.launch[on], kind="stable")]
            asked = np.flatnonzero(streams == stream)
            at = np.searchsorted(a.launch[on], times[asked]) - 1 + further
            there = (at >= 0) & (at < len(on))
            found[asked[there]] = on[at[there]]
        return found

    def _draw_sources(self, meetings: Mapping[int, Ends], told: frozenset[int]) -> None:
        """A collective comes after the last thing that its thread launched on another stream before it."""
        a = self._all
        computes = a.mine & ~np.isin(a.row, list(meetings))
        for k in np.setdiff1d(np.flatnonzero(a.mine & ~computes), list(told)):
            before = np.flatnonzero(computes & (a.thread == a.thread[k]) & (a.launch < a.launch[k]))
            if not len(before):
                continue
            last = before[[np.argmax(a.launch[before])]]
            if a.stream[last[0]] != a.stream[k] and a.end[last[0]] <= a.start[k]:
                self._hold(np.array([k]), self.ends[last], a.end[last], Edge.READY, self._rest)

    def _infer_waits(self, told: frozenset[int]) -> None:
        """The waits of activities of which none was recorded."""
        a = self._all
        by_end = np.argsort(a.end, kind="stable")
        last = np.searchsorted(a.end[by_end], a.start, side="right") - 1
        unexplained = np.flatnonzero(a.mine & (a.start - self._held > _UNEXPLAINED))
        for k in np.setdiff1d(unexplained, list(told)).tolist():
            start = int(a.start[k])
            found = self._waited_for(by_end, int(last[k]), k, max(int(self._held[k]), start - _AT_ONCE))
            if found is not None:
                lag, row = start - int(a.end[found]), int(a.row[found])
                self._draft.edge(int(self.ends[found]), int(self._starts[k]), Edge.WAIT, lag, self.owner, row)

    def _waited_for(self, by_end: NDArray[np.int64], last: int, k: int, since: int) -> int | None:
        """The activity on another stream that ended last before k started, if it ended after `since`."""
        a = self._all
        while last >= 0 and a.end[by_end[last]] > since:
            one = int(by_end[last])
            if a.stream[one] != a.stream[k]:
                return one
            last -= 1
        return None
