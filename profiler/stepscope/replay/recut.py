"""A step whose gradients were reduced in other buckets: the recorded collectives go, new ones come in their place."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from stepscope.replay.joined import Key
from stepscope.replay.network import NO_EVENT, Edge, Network

_HOLDING = (Edge.STREAM, Edge.WAIT, Edge.BLOCK)
"""How the end of a collective holds up something else."""


@dataclass(frozen=True, slots=True)
class Part:
    """One rank's part in a bucket; ns on its recording's clock.

    launched: when its host launches the bucket. ready: when the device has the last gradient; None on a CPU.
    needed: when the rank first needs the bucket; what comes from then on waits for it.
    """

    launched: int
    ready: int | None
    needed: int


@dataclass(frozen=True, slots=True)
class Bucket:
    """A bucket reduced by all ranks that have a part in it, by recording index.

    transfer: ns if it has the link alone. carries: the replaced collectives that any of its gradients were in: on a device, what
    waited for those waits for it, and no sooner than it has been launched.
    """

    transfer: float
    parts: Mapping[int, Part]
    carries: frozenset[Key] = frozenset()


@dataclass(frozen=True, slots=True)
class Recut:
    """One backward's buckets, in launch order, in the place of the collectives `replaced`.

    lanes: how many run at once on a rank; several share one link equally.
    """

    replaced: frozenset[Key]
    buckets: tuple[Bucket, ...]
    lanes: int = 1


def recut(
    network: Network, wanted: Sequence[Recut], numbers: Mapping[Key, int], shifts: Mapping[int, int]
) -> Network:
    """The network with other buckets.

    numbers: of each collective. shifts: what to add to a recording's times to have them on the network's clock.
    """
    for one in wanted:
        drawing = _Drawing(network, _places(network, one), shifts)
        drawing.draw(one)
        network = _without(drawing.network(), one.replaced, numbers)
    return network


def knows(network: Network, one: Recut) -> bool:
    """Whether the network can be drawn so: on a device only if the collectives are apart from the stream of their data."""
    on_device = any(part.ready is not None for bucket in one.buckets for part in bucket.parts.values())
    return not on_device or len(_edges_of(network, one.replaced, Edge.READY)) > 0


@dataclass(frozen=True, slots=True)
class _Place:
    """Where one rank's buckets come from and go to: the launching thread, and the stream of the data on a device."""

    thread: int
    stream: int | None


def _places(network: Network, one: Recut) -> dict[int, _Place]:
    found: dict[int, _Place] = {}
    lanes = {kind: _source_lanes(network, one.replaced, kind) for kind in (Edge.LAUNCH, Edge.READY)}
    for owner, thread in lanes[Edge.LAUNCH].items():
        found[owner] = _Place(thread, lanes[Edge.READY].get(owner))
    return found


def _source_lanes(network: Network, about: frozenset[Key], kind: Edge) -> dict[int, int]:
    """By recording, the thread or stream that an edge of a kind about some collectives comes from."""
    return {
        int(network.owner[edge]): int(network.lane[network.source[edge]])
        for edge in _edges_of(network, about, kind).tolist()
    }


def _without(network: Network, replaced: frozenset[Key], numbers: Mapping[Key, int]) -> Network:
    """The network in which some collectives take no time, nothing waits for them, and they keep nothing else waiting."""
    leaves, begins = _edges_of(network, replaced, Edge.LEAVE), _edges_of(network, replaced, Edge.ARRIVAL)
    held = np.isin(network.source, network.target[leaves]) & np.isin(network.kind, _HOLDING)
    held |= np.isin(network.target, network.source[begins]) & (network.kind == Edge.STREAM)
    gone = [numbers[key] for key in replaced if key in numbers]
    lag = network.lag.copy()
    lag[leaves] = 0
    work = np.where(np.isin(network.collective, gone), 0.0, network.work)
    return replace(network, work=work, lag=lag).without_edges(held)


def _edges_of(network: Network, keys: frozenset[Key], kind: Edge) -> NDArray[np.int64]:
    """The edges of a kind that are about some collectives."""
    among = np.flatnonzero(network.kind == kind)
    about = zip(network.owner[among].tolist(), network.row[among].tolist(), strict=True)
    return among[np.fromiter((key in keys for key in about), np.bool_, len(among))]


@dataclass(frozen=True, slots=True)
class _Waiting:
    """A point of a device's or a host's that waits for a replaced collective, with its lag.

    follows: it was told to when the collective was launched (a stream's wait, a blocking launch), so the wait goes where the
    launch goes. Others come where they stand in the program: a call that synchronises, or one that finds no room for a launch.
    """

    point: int
    lag: int
    follows: bool


def _calls(network: Network) -> dict[int, int]:
    """For the beginning of each device activity, when the host launched it."""
    launches = np.flatnonzero(network.kind == Edge.LAUNCH)
    called = network.time[network.source[launches]]
    return dict(zip(network.target[launches].tolist(), called.tolist(), strict=True))


class _Drawing:
    """Points and edges of new buckets, to be added to a network."""

    def __init__(self, network: Network, places: Mapping[int, _Place], shifts: Mapping[int, int]) -> None:
        self._network, self._places, self._shifts = network, places, shifts
        self._on: dict[tuple[int, int], NDArray[np.int64]] = {}
        self._called = _calls(network)
        self._points: list[tuple[int, int, int, float, bool]] = []
        self._edges: list[tuple[int, int, int, Edge]] = []
        self._put_in: dict[int, list[tuple[int, int]]] = {}
        """By a thread's point, those that were put in after it, with the lag since."""

    def network(self) -> Network:
        """The network with all that was drawn."""
        return self._network.with_points(self._points).with_edges(self._edges)

    def draw(self, one: Recut) -> None:
        """Draw one backward's buckets."""
        waits = self._waits_for(one.replaced)
        needs = {owner: self._needs(owner, one.buckets) for owner in self._places}
        over: list[int] = []
        for place, bucket in enumerate(one.buckets):
            before = over[place - one.lanes] if place >= one.lanes else None
            parts = {owner: part for owner, part in bucket.parts.items() if owner in self._places}
            begun = [self._arrival(owner, part) for owner, part in parts.items()]
            last = max(self._time(point) for point in begun)
            over.append(self._point(last, min(parts), work=bucket.transfer, shared=one.lanes > 1))
            self._edges += [(point, over[-1], 0, Edge.ARRIVAL) for point in begun]
            self._edges += [(before, point, 0, Edge.STREAM) for point in begun if before is not None]
            heirs = {heir for key in bucket.carries for heir in waits.get(key, []) if key[0] in parts}
            self._edges += [
                (over[-1], point, heir.lag, Edge.WAIT)
                for heir in heirs
                if (point := self._after_launch(heir, parts)) is not None
            ]
            waiting = (needs[owner].get(part.needed) for owner, part in parts.items())
            self._edges += [(over[-1], point, 0, Edge.BLOCK) for point in waiting if point is not None]

    def _arrival(self, owner: int, part: Part) -> int:
        """A rank's arrival at a bucket: after its launch, and on a device after the data too."""
        place, shift = self._places[owner], self._shifts[owner]
        moments = [(part.launched + shift, place.thread, Edge.LAUNCH)]
        if part.ready is not None and place.stream is not None:
            moments.append((part.ready + shift, place.stream, Edge.READY))
        arrival = self._point(max(moment for moment, _, _ in moments), owner)
        for moment, lane, kind in moments:
            anchor = self._last(owner, lane, moment)
            if anchor is not None:
                self._edges.append((anchor, arrival, moment - self._time(anchor), kind))
        return arrival

    def _waits_for(self, replaced: frozenset[Key]) -> dict[Key, list[_Waiting]]:
        """On devices, what waits for each of some collectives."""
        network = self._network
        holds = np.flatnonzero(np.isin(network.kind, (Edge.WAIT, Edge.BLOCK)))
        found: dict[Key, list[_Waiting]] = {}
        for edge in _edges_of(network, replaced, Edge.LEAVE).tolist():
            key = int(network.owner[edge]), int(network.row[edge])
            if key[0] in self._places and self._places[key[0]].stream is not None:
                found[key] = [
                    _Waiting(
                        int(network.target[wait]),
                        int(network.lag[wait]),
                        follows=(int(network.owner[wait]), int(network.row[wait])) == key,
                    )
                    for wait in holds[network.source[holds] == network.target[edge]].tolist()
                ]
        return found

    def _after_launch(self, heir: _Waiting, parts: Mapping[int, Part]) -> int | None:
        """Where a wait for a bucket stands: nothing waits for what is launched only after it, or it would wait for itself."""
        owner, lane = int(self._network.point_owner[heir.point]), int(self._network.lane[heir.point])
        launched = parts[owner].launched + self._shifts[owner]
        if self._called.get(heir.point, self._time(heir.point)) > launched:
            return heir.point
        if not heir.follows:
            return None
        here = self._starts(owner, lane) if heir.point in self._called else self._all(owner, lane)
        later = (point for point in here.tolist() if self._called.get(point, self._time(point)) > launched)
        return next(later, None)

    def _needs(self, owner: int, buckets: Sequence[Bucket]) -> dict[int, int]:
        """By the moment at which a rank needs buckets, the point that they hold up.

        On a device that is where the next activity of the data's stream begins; on a CPU a point of the thread.
        """
        place, shift = self._places[owner], self._shifts[owner]
        moments = sorted({bucket.parts[owner].needed for bucket in buckets if owner in bucket.parts})
        if place.stream is None:
            return {moment: self._in_program(owner, place.thread, moment + shift) for moment in moments}
        starts = self._starts(owner, place.stream)
        found = np.searchsorted(self._network.time[starts], np.array(moments) + shift)
        return {
            moment: int(starts[k])
            for moment, k in zip(moments, found.tolist(), strict=True)
            if k < len(starts)
        }

    def _starts(self, owner: int, stream: int) -> NDArray[np.int64]:
        """Where the activities of a stream begin, in order."""
        here = self._all(owner, stream)
        return here[np.isin(here, list(self._called))]

    def _in_program(self, owner: int, thread: int, moment: int) -> int:
        """A new point in a thread's program order, after those that were put in before it."""
        point = self._point(moment, owner, thread)
        before = self._last(owner, thread, moment)
        if before is None:
            return point
        passed = moment - self._time(before)
        network = self._network
        following = np.flatnonzero((network.source == before) & (network.kind == Edge.ORDER))
        put_in = self._put_in.setdefault(before, [])
        for edge in following.tolist():
            lag = int(network.lag[edge])
            passed = min(passed, lag)
            self._edges.append((point, int(network.target[edge]), lag - passed, Edge.ORDER))
        self._edges.append((before, point, passed, Edge.ORDER))
        self._edges += [(other, point, passed - lag, Edge.ORDER) for other, lag in put_in]
        put_in.append((point, passed))
        return point

    def _last(self, owner: int, lane: int, moment: int) -> int | None:
        """The last point of a thread or stream no later than a moment."""
        there = self._all(owner, lane)
        place = int(np.searchsorted(self._network.time[there], moment, side="right")) - 1
        return int(there[place]) if place >= 0 else None

    def _all(self, owner: int, lane: int) -> NDArray[np.int64]:
        """The points of a thread or stream, in order."""
        if (owner, lane) not in self._on:
            here = np.flatnonzero((self._network.point_owner == owner) & (self._network.lane == lane))
            self._on[owner, lane] = here[np.argsort(self._network.time[here], kind="stable")]
        return self._on[owner, lane]

    def _time(self, point: int) -> int:
        count = len(self._network.time)
        return int(self._network.time[point]) if point < count else self._points[point - count][0]

    def _point(
        self, time: int, owner: int, lane: int = NO_EVENT, *, work: float = 0.0, shared: bool = False
    ) -> int:
        self._points.append((time, owner, lane, work, shared))
        return len(self._network.time) + len(self._points) - 1
