"""What a replay may change, and how the graph takes it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from stepscope import intervals as iv
from stepscope.replay.joined import Key
from stepscope.replay.network import Edge, Network
from stepscope.replay.recut import Recut, recut
from stepscope.replay.streams import arrivals, moved, waiting


@dataclass(frozen=True, slots=True)
class Segment:
    """A stretch of one host thread, on its recording's own clock in ns, of which `keep` (0 to 1) remains.

    What passed until the thread took over from the one that called backward, or the other way round, is the thread's own.
    """

    owner: int
    thread: int
    start: int
    end: int
    keep: float = 0.0


@dataclass(frozen=True, slots=True)
class Change:
    """What is otherwise in a replay. Keys are (recording index, event row); nothing else changes.

    transfers: factor on a collective's transfer time; a collective that ranks share takes the smallest that any of its
        keys was given. Waiting for the other ranks stays.
    unwaited: collectives and blocking calls for which nothing waits, neither a stream nor a host thread.
    unblocked: collectives and calls for which no host thread waits; streams still do.
    unheld: device activities that wait for no other stream: they come in the order of their own, once launched.
    moved: collectives put on a stream of their own instead of the one that they were on.
    after: collectives, each with an activity that waits for its end: a wait that the measured times did not show, because
        something else came later still.
    activities: factor on the time that device activities run.
    segments: what becomes of stretches of host threads.
    launched: for a collective, the measured moment on its recording's clock at which it is launched instead, such as
        that of its last gradient; the moment moves with what comes before it.
    ignored: recordings that no collective waits for: a straggler that isn't one.
    recut: backwards whose gradients are reduced in other buckets.
    """

    transfers: Mapping[Key, float] = field(default_factory=dict)
    unwaited: frozenset[Key] = frozenset()
    unblocked: frozenset[Key] = frozenset()
    unheld: frozenset[Key] = frozenset()
    moved: frozenset[Key] = frozenset()
    after: Mapping[Key, Key] = field(default_factory=dict)
    activities: Mapping[Key, float] = field(default_factory=dict)
    segments: tuple[Segment, ...] = ()
    launched: Mapping[Key, int] = field(default_factory=dict)
    ignored: frozenset[int] = frozenset()
    recut: tuple[Recut, ...] = ()


NOTHING = Change()


def apply(network: Network, change: Change, numbers: Mapping[Key, int], shifts: Mapping[int, int]) -> Network:
    """The network with a change made to it.

    numbers: of each collective. shifts: what to add to a recording's times to have them on the network's clock.
    """
    changed = _transfers(network, change, numbers)
    changed = _activities(changed, change)
    changed = _segments(changed, change, shifts)
    changed = _launched(changed, change, shifts)
    changed = moved(changed, change.moved)
    changed = _dropped(changed, change)
    return waiting(recut(changed, change.recut, numbers, shifts), change.after)


def _transfers(network: Network, change: Change, numbers: Mapping[Key, int]) -> Network:
    factors: dict[int, float] = {}
    for key, factor in change.transfers.items():
        if key in numbers:
            factors[numbers[key]] = min(factor, factors.get(numbers[key], factor))
    if not factors:
        return network
    work, lag = network.work.copy(), network.lag.copy()
    leaving = np.flatnonzero(network.kind == Edge.LEAVE)
    number = network.collective[network.source[leaving]]
    for collective, factor in factors.items():
        work[network.collective == collective] *= factor
        mine = leaving[number == collective]
        lag[mine] = np.rint(lag[mine] * factor)
    return replace(network, work=work, lag=lag)


def _activities(network: Network, change: Change) -> Network:
    if not change.activities:
        return network
    lag = network.lag.copy()
    runs = np.flatnonzero(network.kind == Edge.RUN)
    keys = zip(network.owner[runs].tolist(), network.row[runs].tolist(), strict=True)
    lag[runs] = np.rint(lag[runs] * [change.activities.get(key, 1.0) for key in keys])
    return replace(network, lag=lag)


def edges_of_thread(network: Network, owner: int, thread: int) -> NDArray[np.int64]:
    """The edges whose lags are what a host thread of a recording did."""
    order = (network.kind == Edge.ORDER) & (network.lane[network.source] == thread)
    handed = (network.kind == Edge.HANDOFF) & (network.lane[network.target] == thread)
    return np.flatnonzero((order | handed) & (network.owner == owner))


def _segments(network: Network, change: Change, shifts: Mapping[int, int]) -> Network:
    """Program order loses what the segments lose of it, and never more than it has."""
    lag = network.lag.copy()
    for segment in change.segments:
        shift = shifts[segment.owner]
        edges = edges_of_thread(network, segment.owner, segment.thread)
        span = iv.union(np.array([segment.start + shift]), np.array([segment.end + shift]))
        inside = iv.covered_within(
            span, network.time[network.source[edges]], network.time[network.target[edges]]
        )
        lost = np.minimum(lag[edges], np.rint(inside * (1 - segment.keep)).astype(np.int64))
        lag[edges] -= lost
    return replace(network, lag=lag) if change.segments else network


def _launched(network: Network, change: Change, shifts: Mapping[int, int]) -> Network:
    """In the place of what a collective's launch waited for, the moment at which it was ready."""
    dropped = np.zeros(len(network.source), dtype=np.bool_)
    more: list[tuple[int, int, int, Edge]] = []
    for (owner, row), ready in change.launched.items():
        about = (network.owner == owner) & (network.row == row)
        start = np.flatnonzero(about & np.isin(network.kind, (Edge.READY, Edge.LAUNCH)))
        if not len(start):
            continue
        # Where the data comes from a stream, the moment is one of that stream, else of the launching thread.
        known_by = start[np.argmax(network.kind[start])]
        anchor = _anchor(network, known_by, ready + shifts[owner])
        if anchor is not None:
            dropped[start] = True
            after = ready + shifts[owner] - int(network.time[anchor])
            more.append(
                (anchor, int(network.target[known_by]), after + int(network.lag[known_by]), Edge.LAUNCH)
            )
    return network.without_edges(dropped).with_edges(more) if more else network


def _anchor(network: Network, edge: int, moment: int) -> int | None:
    """The last point before a moment on the stream or thread that an edge comes from."""
    source = network.source[edge]
    there = (network.point_owner == network.point_owner[source]) & (network.lane == network.lane[source])
    found = np.flatnonzero(there & (network.time <= moment))
    return int(found[np.argmax(network.time[found])]) if len(found) else None


def _dropped(network: Network, change: Change) -> Network:
    """Without the wait edges taken out, and without the arrivals of ignored recordings where anybody else arrives."""
    between_streams = np.isin(network.kind, (Edge.WAIT, Edge.READY))
    dropped = _about(network, change.unwaited) & np.isin(network.kind, (Edge.WAIT, Edge.BLOCK))
    dropped |= _about(network, change.unblocked) & (network.kind == Edge.BLOCK)
    if change.unheld:
        places = arrivals(network)
        held = [places[key] for key in change.unheld if key in places]
        dropped |= between_streams & np.isin(network.target, held)
    arrival = network.kind == Edge.ARRIVAL
    ignored = arrival & np.isin(network.owner, list(change.ignored))
    others = np.bincount(network.target[arrival & ~ignored], minlength=len(network.time))
    dropped |= ignored & (others[network.target] > 0)
    return network.without_edges(dropped) if dropped.any() else network


def _about(network: Network, wanted: frozenset[Key]) -> NDArray[np.bool_]:
    """The edges that are about some events."""
    found = np.zeros(len(network.source), dtype=np.bool_)
    for index in {index for index, _ in wanted}:
        rows = [row for owner, row in wanted if owner == index]
        found |= (network.owner == index) & np.isin(network.row, rows)
    return found
