"""What collectives run over: a link, a node, a fabric; and what they cost there."""

from __future__ import annotations

import math
from dataclasses import dataclass

from stepscope.budget.quantities import ZERO_TIME, Rate, Time
from stepscope.errors import InputError


@dataclass(frozen=True, slots=True)
class Link:
    """One rank's link: latency a hop (alpha) and rate each way (B), sending and receiving at the same time.

    floor: what a bucket's collective takes at least, however short, where that was measured. Raises InputError unless latency
    and rate are finite and above zero.
    """

    latency: Time
    rate: Rate
    floor: Time = ZERO_TIME

    def __post_init__(self) -> None:
        for name, value in (("latency", self.latency.base), ("bandwidth", self.rate.base)):
            if not (math.isfinite(value) and value > 0):
                raise InputError(f"a link's {name} of {value:g} is impossible; give a number above 0")


@dataclass(frozen=True, slots=True)
class Node:
    """Ranks that share a machine, and the link among them. Raises InputError for a node without ranks."""

    ranks: int
    link: Link

    def __post_init__(self) -> None:
        if self.ranks < 1:
            raise InputError(f"a node of {self.ranks} ranks is impossible; give at least 1")


@dataclass(frozen=True, slots=True)
class Fabric:
    """`ranks` that reach each other over `link`; `node` where it is known how many of them share a machine.

    one_link: why no ranks have a faster link among them; None where some may.
    """

    ranks: int
    link: Link
    node: Node | None = None
    one_link: str | None = None

    @property
    def in_one_node(self) -> bool:
        """Whether all ranks are known to share a machine."""
        return self.node is not None and self.ranks <= self.node.ranks


@dataclass(frozen=True, slots=True)
class Cost:
    """A time in two parts: what start-ups take, whatever the size, and what the bytes take."""

    latency: Time
    bandwidth: Time

    @property
    def total(self) -> Time:
        """Both parts."""
        return self.latency + self.bandwidth

    @property
    def latency_share(self) -> float:
        """Share of the total that goes to start-ups; 0 where the total is nothing."""
        return self.latency / self.total if self.total.base else 0.0

    def __add__(self, other: Cost) -> Cost:
        return Cost(self.latency + other.latency, self.bandwidth + other.bandwidth)

    def __mul__(self, times: float) -> Cost:
        return Cost(self.latency * times, self.bandwidth * times)


FREE = Cost(Time(0.0), Time(0.0))


def transfer(start_ups: float, volume: float, link: Link, size_over_rate: Time) -> Cost:
    """`start_ups` messages one after another, and `volume` times the size through the busiest rank's link."""
    return Cost(link.latency * start_ups, size_over_rate * volume)
