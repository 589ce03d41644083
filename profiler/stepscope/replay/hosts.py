"""Host threads in program order: points on them, and the stretches in which they were blocked."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from stepscope import intervals as iv
from stepscope.replay.draft import Column, Draft
from stepscope.replay.network import NO_EVENT, Edge


class Threads:
    """The host threads of one recording while its graph is drawn.

    Program order joins a thread's points. What the thread did in between is the lag; a stretch in which it was blocked
    counts no further than it would have had there been nothing to wait for.
    """

    def __init__(self, draft: Draft, owner: int, shift: int) -> None:
        self._draft, self._owner, self._shift = draft, owner, shift
        self._points: dict[int, dict[int, int]] = {}
        self._blocked: dict[int, list[tuple[int, int]]] = {}

    def at(self, thread: int, time: int) -> int:
        """The point of a thread at a time of the recording's own clock; the same one if asked for again."""
        points = self._points.setdefault(thread, {})
        if time not in points:
            points[time] = self._draft.point(time + self._shift, self._owner, thread)
        return points[time]

    def at_all(self, threads: Column, times: Column) -> Column:
        """The points of several threads and times, in columns."""
        for thread in np.unique(threads).tolist():
            points = self._points.setdefault(thread, {})
            new = np.array(
                [t for t in np.unique(times[threads == thread]).tolist() if t not in points], np.int64
            )
            lanes = np.full(len(new), thread, dtype=np.int64)
            added = self._draft.points(new + self._shift, self._owner, lanes)
            points.update(zip(new.tolist(), added.tolist(), strict=True))
        pairs = zip(threads.tolist(), times.tolist(), strict=True)
        return np.array([self._points[thread][time] for thread, time in pairs], dtype=np.int64)

    def block(self, thread: int, start: int, end: int) -> None:
        """Say that the thread did nothing of its own in [start, end): that time is no part of program order's lag."""
        if end > start:
            self._blocked.setdefault(thread, []).append((start, end))

    def waits(self, thread: int, stretch: tuple[int, int], ends: Sequence[tuple[int, int, int]]) -> bool:
        """Let a thread wait in a stretch for some things (point, its end, the row it is about).

        What passed after the last of them ended is taken for the thread's own waking and work, needed in any case.
        Returns whether the measured times allow it.
        """
        start, resumed = stretch
        last = max(end for _, end, _ in ends)
        point = self.at(thread, resumed)
        fits = [
            self._draft.edge(source, point, Edge.BLOCK, resumed - last, self._owner, row)
            for source, end, row in ends
        ]
        if any(fits):
            self.block(thread, start, min(last, resumed))
        return any(fits)

    def join(self) -> None:
        """Draw program order between the points of every thread."""
        for thread, points in self._points.items():
            spans = np.array(self._blocked.get(thread, []), dtype=np.int64).reshape(-1, 2)
            blocked = iv.union(spans[:, 0], spans[:, 1])
            times = np.array(sorted(points), dtype=np.int64)
            at = np.array([points[time] for time in times.tolist()], dtype=np.int64)
            lags = np.diff(times) - iv.covered_within(blocked, times[:-1], times[1:])
            nothing = np.full(len(lags), NO_EVENT, dtype=np.int64)
            self._draft.edges(at[:-1], at[1:], Edge.ORDER, lags, self._owner, nothing)
