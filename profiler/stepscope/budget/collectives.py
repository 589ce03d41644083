"""The other collectives: reduce-scatter, all-gather, broadcast, all-to-all. The rings of the first two are in `ring`.

Formulas: Thakur, Rabenseifner and Gropp, "Optimization of collective communication operations in MPICH", Int. J. High
Performance Computing Applications 19 (2005), unless a docstring names another. Assumptions as of `algorithms`.
"""

from __future__ import annotations

from stepscope.budget.algorithms import tree_depth, two_tree_stream
from stepscope.budget.links import Cost, Link, transfer
from stepscope.budget.quantities import Size
from stepscope.budget.ring import ring_all_gather


def halving_reduce_scatter(ranks: int, size: Size, link: Link) -> Cost:
    """Recursive halving: `log2 P alpha + (P-1)/P S/B`; `size` is what each rank puts in. Domain: P a power of two."""
    return transfer(tree_depth(ranks), (ranks - 1) / ranks, link, size / link.rate)


def bruck_all_gather(ranks: int, size: Size, link: Link) -> Cost:
    """Everybody's part doubles every round: `log2 P alpha + (P-1)/P S/B`, log2 P rounded up; `size` is the gathered whole.

    Source: Bruck, Ho, Kipnis, Upfal and Weathersby, "Efficient algorithms for all-to-all communications in multiport
    message-passing systems", IEEE Trans. Parallel and Distributed Systems 8 (1997). Domain: any P.
    """
    return transfer(tree_depth(ranks), (ranks - 1) / ranks, link, size / link.rate)


def binomial_broadcast(ranks: int, size: Size, link: Link) -> Cost:
    """The whole message down a binomial tree: `log2 P (alpha + S/B)`, log2 P rounded up. For short messages; any P."""
    return transfer(tree_depth(ranks), tree_depth(ranks), link, size / link.rate)


def scatter_all_gather_broadcast(ranks: int, size: Size, link: Link) -> Cost:
    """Scatter down a tree, then a ring all-gather: `(log2 P + P - 1) alpha + 2(P-1)/P S/B` (van de Geijn). Any P."""
    scatter = transfer(tree_depth(ranks), (ranks - 1) / ranks, link, size / link.rate)
    return scatter + ring_all_gather(ranks, size, link)


def two_tree_broadcast(ranks: int, size: Size, link: Link) -> Cost:
    """Pipelined through two binary trees: `two_tree_stream` (Sanders, Speck and Traeff 2009). For long messages; any P."""
    return two_tree_stream(ranks, size, link)


def pairwise_all_to_all(ranks: int, size: Size, link: Link) -> Cost:
    """P - 1 rounds, one partner each: `(P-1) alpha + (P-1)/P S/B`; `size` is all that a rank sends, its own part included.

    Assumes full bisection bandwidth. Domain: any P. NCCL and RCCL send and receive with all partners this way.
    """
    return transfer(ranks - 1, (ranks - 1) / ranks, link, size / link.rate)


def bruck_all_to_all(ranks: int, size: Size, link: Link) -> Cost:
    """log2 P rounds with half of the data each: `log2 P (alpha + S/2B)`, log2 P rounded up. For short messages (Bruck et al.).

    Domain: any P; exact for powers of two, an upper bound otherwise.
    """
    return transfer(tree_depth(ranks), tree_depth(ranks) / 2, link, size / link.rate)
