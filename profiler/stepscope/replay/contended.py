"""A replay on CPUs in which compute is slower beside transfers: gloo's threads and the kernel's take time from the training's.

The plain replay keeps every activity as long as it was. Where transfers move by a good part of backward, as they do in other
buckets, backward is slower at other times than it was; this one tells the slowed time from the work, and slows it anew where the
transfers now are.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from stepscope import intervals as iv
from stepscope.intervals import Intervals
from stepscope.replay.change import NOTHING, Change, apply
from stepscope.replay.graph import StepGraph
from stepscope.replay.network import Edge, Network
from stepscope.replay.timeline import Timeline
from stepscope.trace.recording import Recording

_ROUNDS = 4
"""Where the transfers are and how fast compute is depend on each other; after so many rounds neither moves any more."""
_FEWEST = 3
_BESIDE = 0.9
_HOST = (Edge.ORDER, Edge.LAUNCH)


def slowdown(recordings: Iterable[tuple[Recording, Timeline]]) -> float | None:
    """How many times as long the same operators on the same shapes took beside a transfer; None where too few ran both ways."""
    alone, beside = 0.0, 0.0
    for recording, timeline in recordings:
        ops = recording.collectives
        start, end = (
            np.array([getattr(op, side) for op in ops], dtype=np.int64) for side in ("start", "end")
        )
        rows = timeline.computing_rows(on_device=False, without=[op.row for op in ops])
        events = timeline.events
        covered = iv.covered_within(iv.union(start, end), events.start[rows], events.end[rows])
        seen: dict[object, tuple[list[int], list[int]]] = defaultdict(lambda: ([], []))
        for row, inside in zip(rows.tolist(), covered.tolist(), strict=True):
            took, shapes = int(events.duration[row]), timeline.trace.shapes.get(row)
            if not inside or inside > _BESIDE * took:
                seen[int(events.name[row]), str(shapes.dims) if shapes else ""][inside > 0].append(took)
        for apart, together in seen.values():
            if min(len(apart), len(together)) >= _FEWEST:
                # Means of both: a few that took much longer, as where the scheduler stopped the thread, are in either.
                alone += float(np.mean(apart)) * len(together)
                beside += sum(together)
    return max(1.0, beside / alone) if alone else None


@dataclass(frozen=True, slots=True)
class Contended:
    """Replays one step of CPU recordings.

    slowdown: how many times as long compute takes beside a transfer. backward_end: by recording, the end of backward on its
    clock in ns, after which a thread waits or works alone. host_time: factor on all that hosts do, for a machine that is
    quicker or slower than it was.
    """

    graph: StepGraph
    slowdown: float
    backward_end: Mapping[int, int]
    host_time: float = 1.0

    def pace(self, change: Change = NOTHING) -> dict[int, float]:
        """What each rank's step takes; ns."""
        graph = self.graph
        network = apply(graph.network, change, graph.numbers, graph.shifts)
        before = _transfers(graph.network, graph.network.time.astype(np.float64))
        after = before
        for _ in range(_ROUNDS if self.slowdown > 1 else 1):
            paced = self._paced(network, before, after)
            times = paced.solve()
            after = _transfers(paced, times)
        return {index: float(times[last] - times[first]) for index, (first, last) in graph.borders.items()}

    def _paced(self, network: Network, before: Intervals, after: Intervals) -> Network:
        """With host lags as they are where the transfers now are."""
        lag = network.lag.copy()
        owner = network.point_owner[network.source]
        for index, (first, _) in self.graph.borders.items():
            mine = np.flatnonzero(np.isin(network.kind, _HOST) & (owner == index))
            start = network.time[network.source[mine]]
            origin = int(network.time[first])
            end = max(origin, self.backward_end.get(index, origin) + self.graph.shifts[index])
            becomes = _Moved(before, after, (origin, end), self.slowdown, self.host_time)
            lag[mine] = np.rint(becomes(start + lag[mine]) - becomes(start)).astype(np.int64)
        return replace(network, lag=lag)


class _Moved:
    """Times of a thread that works from a start to the end of backward, slowed by transfers elsewhere than it was."""

    def __init__(
        self, before: Intervals, after: Intervals, span: tuple[int, int], slowdown: float, host_time: float
    ) -> None:
        self._span, self._host_time = span, host_time
        self._was = _Work(iv.clip(before, *span), span[0], slowdown)
        self._is = _Work(after, span[0], slowdown, host_time)

    def __call__(self, time: NDArray[np.int64]) -> NDArray[np.float64]:
        """When the thread comes to where it was at a time; from the end of backward on nothing slows it."""
        start, end = self._span
        slowed = self._is.when(self._was.done(np.clip(time, start, end)))
        return slowed + (np.minimum(0, time - start) + np.maximum(0, time - end)) * self._host_time


class _Work:
    """Work done by a time, in ns of compute alone, where transfers slow it. cost: ns that a ns of work takes alone."""

    def __init__(self, beside: Intervals, start: int, slowdown: float, cost: float = 1.0) -> None:
        clipped = iv.clip(beside, start, max(start, int(beside[-1, 1]) if len(beside) else start))
        self._time = np.concatenate(([start], clipped.ravel())).astype(np.float64)
        inside = np.arange(len(self._time) - 1) % 2 == 1
        rate = np.where(inside, 1 / slowdown, 1.0) / cost
        self._work = np.concatenate(([0.0], np.cumsum(np.diff(self._time) * rate)))
        self._cost = cost

    def done(self, time: NDArray[np.int64]) -> NDArray[np.float64]:
        """How much is done by a time, which is no earlier than the start."""
        beyond = np.maximum(0.0, time - self._time[-1]) / self._cost
        found: NDArray[np.float64] = np.interp(time, self._time, self._work) + beyond
        return found

    def when(self, work: NDArray[np.float64]) -> NDArray[np.float64]:
        """When so much is done."""
        beyond = np.maximum(0.0, work - self._work[-1]) * self._cost
        found: NDArray[np.float64] = np.interp(work, self._work, self._time) + beyond
        return found


def _transfers(network: Network, times: NDArray[np.float64]) -> Intervals:
    """When anything is on the link."""
    arrivals = np.flatnonzero(network.kind == Edge.ARRIVAL)
    begin = np.full(len(times), -np.inf)
    np.maximum.at(begin, network.target[arrivals], times[network.source[arrivals]])
    moving = np.flatnonzero(network.shared & (network.work > 0) & np.isfinite(begin))
    return iv.union(np.rint(begin[moving]).astype(np.int64), np.rint(times[moving]).astype(np.int64))
