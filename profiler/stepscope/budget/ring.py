"""The flat ring: the model that every figure of the budget rests on.

P ranks in a circle, S bytes in P parts. In one pass of P - 1 hops every part goes round once: that is a reduce-scatter or an
all-gather. An all-reduce is the two one after the other, `T = 2(P-1) alpha + 2(P-1)/P S/B`: no algorithm moves fewer bytes
over a rank's link.

Source: Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms for clusters of workstations", J. Parallel and
Distributed Computing 69 (2009), which proves the bound; the same costs in Thakur, Rabenseifner and Gropp (2005).
Assumes: neighbours' links carry traffic both ways at once and share nothing with other rings, adding costs no time, all
ranks arrive together, messages of any size run at the full rate. Domain: any P; P = 1 costs nothing.
"""

from __future__ import annotations

from stepscope.budget.links import Cost, Link, transfer
from stepscope.budget.quantities import Size

PASSES_OF_ALL_REDUCE = 2


def ring_pass(ranks: int, size: Size, link: Link) -> Cost:
    """P - 1 hops with 1/P of `size` each: a reduce-scatter of `size`, or an all-gather up to `size`."""
    return transfer(ranks - 1, (ranks - 1) / ranks, link, size / link.rate)


def ring_reduce_scatter(ranks: int, size: Size, link: Link) -> Cost:
    """`size` is what each rank puts in; it keeps 1/P of the sum."""
    return ring_pass(ranks, size, link)


def ring_all_gather(ranks: int, size: Size, link: Link) -> Cost:
    """`size` is what each rank ends up with; it puts in 1/P."""
    return ring_pass(ranks, size, link)


def ring_all_reduce(ranks: int, size: Size, link: Link) -> Cost:
    """`size` is what each rank puts in and gets back summed."""
    return ring_reduce_scatter(ranks, size, link) + ring_all_gather(ranks, size, link)


def crossover(ranks: int, link: Link) -> Size:
    """S* = P alpha B: the size at which the two terms of the ring are equal, so that it takes twice its ideal time.

    From 2(P-1) alpha = 2(P-1)/P S/B, whatever the number of passes. Below it the ring is latency-bound, and libraries take
    another algorithm.
    """
    return link.rate.during(link.latency) * ranks
