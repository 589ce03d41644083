"""A network in the making: points and edges are added one by one or in columns, then lags and residuals are settled."""

from __future__ import annotations

from itertools import chain

import numpy as np
from numpy.typing import NDArray

from stepscope.replay.network import NO_EVENT, Edge, Network

Column = NDArray[np.int64]


class Draft:
    """Collects points at measured times (ns, one clock) and edges with nominal lags."""

    def __init__(self) -> None:
        self._time: list[int] = []
        self._begin: list[int] = []
        self._owner: list[int] = []
        self._lane: list[int] = []
        self._collective: list[int] = []
        self._shared: list[bool] = []
        self._context: set[int] = set()
        self._edges: list[tuple[int, int, int, int, int, int]] = []
        self.impossible = 0
        """Edges that the measured times contradict (the target came before the source); they were left out."""

    def point(self, time: int, owner: int, lane: int = NO_EVENT) -> int:
        """A new point of the recording `owner`."""
        return self._add(time, time, owner, lane, NO_EVENT, shared=False)

    def points(self, time: Column, owner: int, lane: Column) -> Column:
        """New points of a recording, in columns."""
        first, count = len(self._time), len(time)
        self._time.extend(time.tolist())
        self._begin.extend(time.tolist())
        self._owner.extend([owner] * count)
        self._lane.extend(lane.tolist())
        self._collective.extend([NO_EVENT] * count)
        self._shared.extend([False] * count)
        return np.arange(first, first + count)

    def context(self, points: Column) -> None:
        """Say that points are ends of device work that an earlier step launched."""
        self._context.update(points.tolist())

    def transfer(self, begin: int, end: int, owner: int, collective: int, *, shared: bool) -> int:
        """A new point that ends a transfer of a collective; what it waits for must have come by its beginning."""
        return self._add(begin, end, owner, NO_EVENT, collective, shared=shared)

    def _add(self, begin: int, end: int, owner: int, lane: int, collective: int, *, shared: bool) -> int:
        self._begin.append(begin)
        self._time.append(end)
        self._owner.append(owner)
        self._lane.append(lane)
        self._collective.append(collective)
        self._shared.append(shared)
        return len(self._time) - 1

    def edge(
        self, source: int, target: int, kind: Edge, lag: int = 0, owner: int = NO_EVENT, row: int = NO_EVENT
    ) -> bool:
        """Let `target` come no earlier than `lag` after `source`.

        The lag is held to what was measured between the two. Returns whether the measured times allow the edge at all.
        """
        gap = self._begin[target] - self._time[source]
        if gap < 0 or source == target:
            self.impossible += gap < 0
            return False
        self._edges.append((source, target, max(0, min(lag, gap)), kind, owner, row))
        return True

    def edges(self, source: Column, target: Column, kind: Edge, lag: Column, owner: int, row: Column) -> None:
        """The same in columns, for edges that the measured times are known to allow."""
        count = len(source)
        columns = (
            source.tolist(),
            target.tolist(),
            lag.tolist(),
            [int(kind)] * count,
            [owner] * count,
            row.tolist(),
        )
        self._edges.extend(zip(*columns, strict=True))

    def network(self) -> Network:
        """Settle it: each transfer's work, and each point's residual."""
        count = len(self._time)
        time, begin = (np.array(column, dtype=np.int64) for column in (self._time, self._begin))
        columns = np.fromiter(chain.from_iterable(self._edges), dtype=np.int64).reshape(-1, 6)
        source, target, lag, kind, owner, row = (np.ascontiguousarray(column) for column in columns.T)
        reached = np.full(count, np.iinfo(np.int64).min, dtype=np.int64)
        np.maximum.at(reached, target, time[source] + lag)
        waits = np.bincount(target, minlength=count) > 0
        shared = np.array(self._shared, dtype=np.bool_)
        return Network(
            time=time,
            residual=np.where(waits, begin - np.where(waits, reached, begin), 0),
            point_owner=np.array(self._owner, dtype=np.int64),
            lane=np.array(self._lane, dtype=np.int64),
            source=source,
            target=target,
            lag=lag,
            kind=kind,
            owner=owner,
            row=row,
            work=np.where(shared, _work_alone(begin, time, shared), (time - begin).astype(np.float64)),
            shared=shared,
            context=np.isin(np.arange(count), list(self._context)),
            collective=np.array(self._collective, dtype=np.int64),
        )


def _work_alone(
    begin: NDArray[np.int64], end: NDArray[np.int64], shared: NDArray[np.bool_]
) -> NDArray[np.float64]:
    """How long each transfer would have taken alone: the integral of 1 / (transfers running at once), in ns."""
    edges = np.unique(np.concatenate((begin[shared], end[shared])))
    work = np.zeros(len(begin))
    if len(edges) < 2:
        return work
    starts = np.searchsorted(np.sort(begin[shared]), edges[:-1], side="right")
    ends = np.searchsorted(np.sort(end[shared]), edges[:-1], side="right")
    rate = np.diff(edges) / np.maximum(1, starts - ends)
    done = np.concatenate(([0.0], np.cumsum(rate)))
    work[shared] = done[np.searchsorted(edges, end[shared])] - done[np.searchsorted(edges, begin[shared])]
    return work
