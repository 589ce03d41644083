"""The engine: points in time, what each waits for, and a pass that tells when each comes.

A point comes at `max over its edges of (when the source comes + lag) + residual`. A point that ends a transfer comes when
its transfer, begun at that time, is over; shared transfers divide one link equally while they run at once. Points that
wait for nothing come when they were measured. With the measured lags and work the pass gives the measured times back,
because every point keeps its residual: the measured delay that none of its edges explains.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

NO_EVENT = -1
_OVER = 1e-6
"""A transfer of which less than this is left (ns) is over."""
_LONGEST_CHAIN = 64
"""Of points measured at one time that wait for each other."""


class Edge(IntEnum):
    """Why one point waits for another."""

    ORDER = 0
    """Program order on a host thread; the lag is what the thread did in between."""
    RUN = 1
    """From the start of a device activity to its end."""
    LAUNCH = 2
    """From the host's call to what it launched."""
    STREAM = 3
    """Order on a stream, or on one of gloo's worker threads."""
    ARRIVAL = 4
    """From a rank's arrival at a collective to the transfer."""
    LEAVE = 5
    """From the transfer to a rank's end of the collective."""
    WAIT = 6
    """A device activity that waits for another stream."""
    BLOCK = 7
    """A host thread that waits for a collective or for the device."""
    READY = 8
    """From the work that a collective's data comes from to the collective."""
    HANDOFF = 9
    """Between a thread that calls backward and the autograd engine's own."""


@dataclass(frozen=True, slots=True)
class Network:
    """Points and edges as columns; times and lags in ns on the first host's clock.

    owner, row: the recording and its event that an edge is about (a waited-for collective, a launched activity, a
    blocking call), else NO_EVENT. lane of a point: the host thread or stream it is on, for those that have one.
    """

    time: NDArray[np.int64]
    """When each point was measured."""
    residual: NDArray[np.int64]
    point_owner: NDArray[np.int64]
    lane: NDArray[np.int64]
    source: NDArray[np.int64]
    target: NDArray[np.int64]
    lag: NDArray[np.int64]
    kind: NDArray[np.int64]
    owner: NDArray[np.int64]
    row: NDArray[np.int64]
    work: NDArray[np.float64]
    """By point: ns of transfer that end at it, at the full rate of its link; 0 elsewhere."""
    shared: NDArray[np.bool_]
    """By point: whether its transfer shares the one link with the others."""
    context: NDArray[np.bool_]
    """By point: the end of device work that an earlier step launched."""
    collective: NDArray[np.int64]
    """By point that ends a transfer, the number of its collective, else NO_EVENT."""

    def solve(self) -> NDArray[np.float64]:
        """When each point comes, in ns; shape (points,)."""
        return Repeated(self).solve()

    def with_edges(self, more: list[tuple[int, int, int, Edge]]) -> Network:
        """A copy with further edges (source, target, lag, kind), which are about no event."""
        if not more:
            return self
        source, target, lag, kind = (np.array(column, dtype=np.int64) for column in zip(*more, strict=True))
        none = np.full(len(more), NO_EVENT, dtype=np.int64)
        return replace(
            self,
            source=np.concatenate((self.source, source)),
            target=np.concatenate((self.target, target)),
            lag=np.concatenate((self.lag, lag)),
            kind=np.concatenate((self.kind, kind)),
            owner=np.concatenate((self.owner, none)),
            row=np.concatenate((self.row, none)),
        )

    def with_points(self, more: list[tuple[int, int, int, float, bool]]) -> Network:
        """A copy with further points (time, owner, lane, work, shared), which for the time being have no edges."""
        if not more:
            return self
        time, owner, lane, work, shared = zip(*more, strict=True)
        none, nothing = (NO_EVENT,) * len(more), (0,) * len(more)
        columns: dict[str, tuple[object, ...]] = {"time": time, "residual": nothing, "point_owner": owner}
        columns |= {"lane": lane, "work": work, "shared": shared, "context": nothing, "collective": none}
        made = {
            name: np.concatenate((getattr(self, name), np.array(column, dtype=getattr(self, name).dtype)))
            for name, column in columns.items()
        }
        return replace(self, **made)

    def without_edges(self, dropped: NDArray[np.bool_]) -> Network:
        """A copy without the edges that a mask selects."""
        keep = ~dropped
        columns = ("source", "target", "lag", "kind", "owner", "row")
        return replace(self, **{name: getattr(self, name)[keep] for name in columns})


class Circle(Exception):
    """A change makes something wait for itself: there can be no such step."""


class _Link:
    """Transfers that share a link equally, advanced from completion to completion.

    Whoever asks for the next completion has worked out everything that does not depend on it, so no transfer can turn up
    later that begins earlier: lags and residuals are never negative.
    """

    def __init__(self) -> None:
        self._now = float("-inf")
        self._waiting: dict[int, tuple[float, float]] = {}
        self._left: dict[int, float] = {}

    def __len__(self) -> int:
        return len(self._waiting) + len(self._left)

    def add(self, point: int, start: float, work: float) -> None:
        """A transfer that begins at `start` and takes `work` ns if alone."""
        self._waiting[point] = (start, work)

    def next_over(self) -> tuple[int, float]:
        """The transfer that is over first, and when."""
        while True:
            first = min(self._waiting, key=lambda point: self._waiting[point][0], default=None)
            done = min(self._left, key=lambda point: self._left[point], default=None)
            over = self._now + self._left[done] * len(self._left) if done is not None else float("inf")
            if first is not None and self._waiting[first][0] < over:
                start, work = self._waiting.pop(first)
                self._advance(max(start, self._now))
                self._left[first] = work
                continue
            assert done is not None
            self._advance(over)
            del self._left[done]
            return done, over

    def _advance(self, until: float) -> None:
        if self._left:
            share = (until - self._now) / len(self._left)
            self._left = {point: max(0.0, left - share) for point, left in self._left.items()}
            self._left = {point: 0.0 if left < _OVER else left for point, left in self._left.items()}
        self._now = until


@dataclass(frozen=True, slots=True)
class Earlier:
    """How much earlier than measured a step follows on those before it, by recording; ns.

    step: its begin on the host. device: the end of what earlier steps launched, seen from that begin.
    """

    step: NDArray[np.float64]
    device: NDArray[np.float64]


class Repeated:
    """A network that is solved several times."""

    def __init__(self, network: Network) -> None:
        self._network = network
        waits = np.bincount(network.target, minlength=len(network.time))
        self._roots = np.flatnonzero(waits == 0)
        edges = None if (network.shared & (network.work > 0)).any() else _in_order(network)
        self._pass = _AsTheyCome(network, waits) if edges is None else _InOrder(network, edges)

    def solve(self, earlier: Earlier | None = None) -> NDArray[np.float64]:
        """When each point comes, see `Network.solve`."""
        network, roots = self._network, self._roots
        begins = np.full(len(network.time), -np.inf)
        begins[roots] = network.time[roots]
        if earlier is not None:
            owner = network.point_owner[roots]
            begins[roots] -= np.where(network.context[roots], earlier.device[owner], 0) + earlier.step[owner]
        return self._pass.solve(begins.tolist())


def _in_order(network: Network) -> NDArray[np.int64] | None:
    """The edges by when their sources were measured: each after all that its source waits for.

    Of edges that took no time, those of a chain come in its order. None where a change lets something come after what was
    measured later, and where such a chain is long or has no end.
    """
    source, target, time = network.source, network.target, network.time
    if (time[source] > time[target]).any():
        return None
    at_once = np.flatnonzero(time[source] == time[target])
    place = np.zeros(len(time), dtype=np.int64)
    for _ in range(_LONGEST_CHAIN):
        later = place.copy()
        np.maximum.at(later, target[at_once], place[source[at_once]] + 1)
        if np.array_equal(later, place):
            return np.lexsort((place[source], time[source]))
        place = later
    return None


class _InOrder:
    """A pass along edges of which it is known beforehand that they are in order: most networks, and many times as fast."""

    def __init__(self, network: Network, edges: NDArray[np.int64]) -> None:
        self._own = network.residual + network.work
        source, target = network.source[edges], network.target[edges]
        takes = self._own[source] + network.lag[edges]
        self._edges = list(zip(source.tolist(), target.tolist(), takes.tolist(), strict=True))

    def solve(self, begins: list[float]) -> NDArray[np.float64]:
        """begins: when each point that waits for nothing comes; ns."""
        for source, target, takes in self._edges:
            reached = begins[source] + takes
            if reached > begins[target]:  # noqa: PLR1730 (twice as fast as max() in the innermost loop)
                begins[target] = reached
        return np.array(begins) + self._own


class _AsTheyCome:
    """A pass that takes each point once all that it waits for has come, with transfers that share a link."""

    def __init__(self, network: Network, waits: NDArray[np.int64]) -> None:
        self._count = len(network.time)
        order = np.argsort(network.source, kind="stable")
        self._first = np.searchsorted(network.source[order], np.arange(self._count + 1)).tolist()
        self._target: list[int] = network.target[order].tolist()
        self._lag: list[int] = network.lag[order].tolist()
        self._open: list[int] = waits.tolist()
        self._residual: list[int] = network.residual.tolist()
        self._work: list[float] = network.work.tolist()
        self._shared: list[bool] = network.shared.tolist()

    def solve(self, begins: list[float]) -> NDArray[np.float64]:
        """begins: when each point that waits for nothing comes; ns. Raises Circle where something waits for itself."""
        earliest, opened = begins, self._open.copy()
        done, link, stack = 0, _Link(), [point for point, waits in enumerate(opened) if not waits]
        first, targets, lags = self._first, self._target, self._lag
        residual, work, shared = self._residual, self._work, self._shared
        while stack or len(link):
            if stack:
                point = stack.pop()
                time = earliest[point] + residual[point]
                if shared[point] and work[point] > 0:
                    link.add(point, time, work[point])
                    continue
                time += work[point]
            else:
                point, time = link.next_over()
            earliest[point] = time
            done += 1
            for edge in range(first[point], first[point + 1]):
                target = targets[edge]
                reached = time + lags[edge]
                if reached > earliest[target]:  # noqa: PLR1730 (twice as fast as max() in the innermost loop)
                    earliest[target] = reached
                opened[target] -= 1
                if not opened[target]:
                    stack.append(target)
        if done < self._count:
            raise Circle
        return np.array(earliest)
