"""All-reduce by other ways than the ring. Sizes are what each rank puts in; P ranks, latency alpha, rate B, S bytes.

Every formula counts start-ups one after another and the bytes through the busiest rank's link, as the ring's does. Adding
up costs no time. Where no library takes an algorithm for gradients, `choice` says so.
"""

from __future__ import annotations

import math

from stepscope.budget.links import Cost, Link, Node, transfer
from stepscope.budget.quantities import Size
from stepscope.budget.ring import ring_all_gather, ring_all_reduce, ring_reduce_scatter


def tree_depth(ranks: int) -> int:
    """ceil(log2 P), exact for any P."""
    return (ranks - 1).bit_length()


def two_tree_stream(ranks: int, size: Size, link: Link) -> Cost:
    """One direction through two binary trees, half of the data each: a broadcast, or a reduction to one rank.

    `min over k of (2 log2 P + 2k)(alpha + S/(2k B)) = 2 log2 P alpha + S/B + sqrt(8 log2 P alpha S/B)` with k blocks a
    tree, of which there is at least one; log2 P is rounded up. The square root is what filling the pipeline costs; it
    counts as latency.

    Source: Sanders, Speck and Traeff, "Two-tree algorithms for full bandwidth broadcast, reduction and scan", Parallel
    Computing 35 (2009). Assumes: a rank sends one message and receives one at a time. Domain: any P.
    """
    depth = tree_depth(ranks)
    wire = size / link.rate
    if depth == 0:
        return transfer(0, 0, link, wire)
    blocks = max(1.0, math.sqrt(wire / link.latency * depth / 2))
    total = (link.latency + wire / (2 * blocks)) * (2 * depth + 2 * blocks)
    return Cost(total - wire, wire)


def tree_all_reduce(ranks: int, size: Size, link: Link) -> Cost:
    """Double binary tree: reduce to the roots, broadcast from them.

    Short messages go as one block through a tree, `2 log2 P (alpha + S/B)` (Thakur, Rabenseifner and Gropp 2005); long
    ones are pipelined through two trees, twice `two_tree_stream`. The cheaper one is taken. 2 S/B at best, against the
    ring's 2(P-1)/P: the tree wins on latency alone.

    NCCL uses double binary trees since 2.4, and its tuner (src/graph/tuning.cc) counts 2 log2 P hops and 2 S/B with a
    factor of 0.9 and a table of corrections for middle sizes; the pipeline's fill stands for those here, so this is
    dearer than NCCL's count before them. In one node NCCL's tree is a chain, and no shorter than the ring.
    Domain: any P.
    """
    wire = size / link.rate
    one_block = transfer(2 * tree_depth(ranks), 2 * tree_depth(ranks), link, wire)
    pipelined = two_tree_stream(ranks, size, link) * 2
    return min(one_block, pipelined, key=lambda cost: cost.total.base)


def halving_doubling_all_reduce(ranks: int, size: Size, link: Link) -> Cost:
    """Recursive halving, then recursive doubling: `2 log2 P alpha + 2(P-1)/P S/B`, for P a power of two.

    For any other P the ranks above the next lower power of two P' first hand over all of their data and get the result
    back at the end: two more messages of the whole size, `(2 log2 P' + 2) alpha + (2(P'-1)/P' + 2) S/B`. So it costs less
    at 64 ranks than at 63, and is no monotonic function of P.

    Source: Rabenseifner, "Optimization of collective reduction operations", ICCS 2004; Thakur, Rabenseifner and Gropp,
    "Optimization of collective communication operations in MPICH", Int. J. High Performance Computing Applications 19
    (2005). Assumes: any two ranks talk at the full rate however far apart, with P/2 pairs at once (full bisection
    bandwidth); on a tapered network the long exchanges collide. Domain: any P, at its best for powers of two.
    """
    power = 1 << (ranks.bit_length() - 1)
    rounds = 2 * (power.bit_length() - 1)
    folded = 0 if power == ranks else 2
    return transfer(rounds + folded, 2 * (power - 1) / power + folded, link, size / link.rate)


def one_shot_all_reduce(ranks: int, size: Size, link: Link) -> Cost:
    """Every rank reads everybody's whole data and adds it up itself: `alpha + (P-1) S/B`.

    Source: the one-shot all-reduce of torch symmetric memory and of TensorRT-LLM. Assumes: all ranks
    reach each other directly, and the P - 1 reads are in flight together, so their latencies are paid once. Domain: ranks of
    one node (NVLink, xGMI); over a network every message costs its own start-up, and it is never used.
    """
    hops = 1 if ranks > 1 else 0
    return transfer(hops, ranks - 1, link, size / link.rate)


def two_shot_all_reduce(ranks: int, size: Size, link: Link) -> Cost:
    """Every rank reads its 1/P from everybody and adds up, then everybody reads the sums: `2 alpha + 2(P-1)/P S/B`.

    Source, assumptions and domain as of `one_shot_all_reduce`: latencies in flight together, ranks of one node.
    """
    hops = 2 if ranks > 1 else 0
    return transfer(hops, 2 * (ranks - 1) / ranks, link, size / link.rate)


def hierarchical_all_reduce(ranks: int, size: Size, link: Link, node: Node) -> Cost:
    """Reduce-scatter in the node, all-reduce of each rank's part across nodes, all-gather in the node; rings all three.

    With g ranks a node and N = P/g nodes: `2(g-1) a + 2(g-1)/g S/b` inside (a, b the node's link) and
    `2(N-1) alpha + 2(N-1)/N (S/g)/B` across. Where both links are the same the bytes are those of the flat ring,
    2(g-1)/g + 2(N-1)/(gN) = 2(P-1)/P exactly, and the start-ups are fewer: g + N - 2 a pass for P - 1, equal only where g or
    N is 1.

    Source: Cho et al., "BlueConnect: decomposing all-reduce for deep learning on heterogeneous
    network hierarchy", MLSys 2019. Assumes: each rank of a node has a link of rate B of its own to the other nodes; see
    `shared_uplink_all_reduce` where they share one. Domain: g divides P.
    """
    return _inside(size, node) + across_nodes(ranks, size, link, node)


def shared_uplink_all_reduce(ranks: int, size: Size, link: Link, node: Node) -> Cost:
    """`hierarchical_all_reduce` where the g ranks of a node share one link of rate B: the part across takes g times longer."""
    across = across_nodes(ranks, size, link, node)
    return _inside(size, node) + Cost(across.latency, across.bandwidth * node.ranks)


def across_nodes(ranks: int, size: Size, link: Link, node: Node) -> Cost:
    """The middle part of `hierarchical_all_reduce`: 1/g of the data, N ranks."""
    return ring_all_reduce(ranks // node.ranks, size / node.ranks, link)


def _inside(size: Size, node: Node) -> Cost:
    return ring_reduce_scatter(node.ranks, size, node.link) + ring_all_gather(node.ranks, size, node.link)
