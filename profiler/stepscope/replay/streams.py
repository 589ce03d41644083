"""Work on other streams than it was on: where device activities begin in a network, and collectives moved off a stream."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from stepscope.replay.joined import Key
from stepscope.replay.network import Edge, Network


def arrivals(network: Network) -> dict[Key, int]:
    """For every device activity whose launch is in the network, the point at which it begins."""
    launches = np.flatnonzero(network.kind == Edge.LAUNCH)
    keys = zip(network.owner[launches].tolist(), network.row[launches].tolist(), strict=True)
    return dict(zip(keys, network.target[launches].tolist(), strict=True))


def ends(network: Network, wanted: Iterable[Key]) -> dict[Key, int]:
    """For each of some collectives that is in the network, the point at which it ends."""
    among = set(wanted)
    leaves = np.flatnonzero(network.kind == Edge.LEAVE)
    keys = zip(network.owner[leaves].tolist(), network.row[leaves].tolist(), strict=True)
    found = dict(zip(keys, network.target[leaves].tolist(), strict=True))
    return {key: point for key, point in found.items() if key in among}


def waiting(network: Network, after: Mapping[Key, Key]) -> Network:
    """With a wait for the end of each collective by an activity that came after it."""
    if not after:
        return network
    begin, end = arrivals(network), ends(network, after)
    return network.with_edges(
        [
            (end[key], begin[follower], 0, Edge.WAIT)
            for key, follower in after.items()
            if key in end and follower in begin and network.time[end[key]] <= network.time[begin[follower]]
        ]
    )


def moved(network: Network, wanted: frozenset[Key]) -> Network:
    """Collectives on a stream of their own instead of the one that they were on.

    What came before and after them there follows each other. A collective still comes after what was before it, since its
    data does, and after the collective moved before it.
    """
    if not wanted:
        return network
    begin = arrivals(network)
    end = {key: point for key, point in ends(network, wanted).items() if key in begin}
    way = _Way(network, {point: begin[key] for key, point in end.items()})
    last: dict[int, int] = {}
    for key in sorted(end, key=lambda key: int(network.time[end[key]])):
        way.take_out(begin[key], last.get(key[0]))
        last[key[0]] = end[key]
    return way.changed()


class _Way:
    """The order on streams, as it is changed."""

    def __init__(self, network: Network, begin_of: Mapping[int, int]) -> None:
        """begin_of: the end of each moved collective to its beginning."""
        self._network, self._begin_of = network, begin_of
        self._order = np.flatnonzero(network.kind == Edge.STREAM)
        self._before = dict(
            zip(network.target[self._order].tolist(), network.source[self._order].tolist(), strict=True)
        )
        self.more: list[tuple[int, int, int, Edge]] = []

    def take_out(self, begin: int, previous: int | None) -> None:
        """Let a moved collective come after the work before it that stays, and after the one moved before it."""
        stays = self._staying_before(begin)
        self.more += [(point, begin, 0, Edge.READY) for point in (stays,) if point is not None]
        self.more += [(point, begin, 0, Edge.STREAM) for point in (previous,) if point is not None]

    def changed(self) -> Network:
        """The network with what stays on the stream in one row."""
        network = self._network
        ends, begins = list(self._begin_of), list(self._begin_of.values())
        dropped = np.zeros(len(network.source), dtype=np.bool_)
        dropped[self._order] = np.isin(network.source[self._order], ends)
        dropped[self._order] |= np.isin(network.target[self._order], begins)
        for edge in np.flatnonzero(dropped).tolist():
            start = int(network.target[edge])
            stays = self._staying_before(start)
            if stays is not None and start not in begins:
                self.more.append((stays, start, int(network.lag[edge]), Edge.STREAM))
        return network.without_edges(dropped).with_edges(self.more)

    def _staying_before(self, start: int) -> int | None:
        """The end of the last work before a point on its stream that is not moved away."""
        before = self._before.get(start)
        while before is not None and before in self._begin_of:
            before = self._before.get(self._begin_of[before])
        return before
