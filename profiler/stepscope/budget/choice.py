"""Which algorithm is the cheapest for a size, among those whose domain the fabric is in, and where that changes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from stepscope.budget import algorithms, collectives, ring
from stepscope.budget.links import Cost, Fabric, Link
from stepscope.budget.quantities import Size
from stepscope.budget.result import Candidate, Choice, SizeRange
from stepscope.budget.setting import TYPICAL_NODE

SMALLEST, LARGEST = Size.from_bytes(256), Size.from_bytes(2.0**44)
"""Sizes between which crossovers are looked for."""

_STEPS_AN_OCTAVE = 4
_HALVINGS = 60

Formula = Callable[[int, Size, Link], Cost]


@dataclass(frozen=True, slots=True)
class Algorithm:
    """A way to run a collective, who takes it, and where it can't be taken."""

    name: str
    used_by: str
    cost: Callable[[Fabric, Size], Cost]
    refusal: Callable[[Fabric], str | None]
    """Why this fabric is outside of the domain; None if it is inside."""
    nccl: bool = False
    """Whether NCCL and RCCL choose it for this collective."""


def _flat(formula: Formula) -> Callable[[Fabric, Size], Cost]:
    return lambda fabric, size: formula(fabric.ranks, size, fabric.link)


def _anywhere(_: Fabric) -> None:
    return None


def _power_of_two(fabric: Fabric) -> str | None:
    return None if fabric.ranks.bit_count() == 1 else f"{fabric.ranks} ranks are no power of two"


NODE_ASSUMED = f"a node of {TYPICAL_NODE.ranks} is an assumption; --gpus-per-node makes it an input"


def _one_node(fabric: Fabric) -> str | None:
    if fabric.one_link is not None:
        return fabric.one_link
    if fabric.node is None:
        return f"needs all ranks in one node; {NODE_ASSUMED}"
    if not fabric.in_one_node:
        return f"needs all {fabric.ranks} ranks in one node; it holds {fabric.node.ranks}"
    return None


def _several_nodes(fabric: Fabric) -> str | None:
    if fabric.one_link is not None:
        return fabric.one_link
    if fabric.node is None:
        return f"needs several nodes; {NODE_ASSUMED}"
    if fabric.node.ranks == 1 or fabric.in_one_node:
        return "needs several ranks a node and several nodes"
    return None


def _hierarchical(fabric: Fabric, size: Size) -> Cost:
    assert fabric.node is not None, "refused before"
    return algorithms.hierarchical_all_reduce(fabric.ranks, size, fabric.link, fabric.node)


RING = "ring"
ALL_REDUCE = (
    Algorithm(RING, "NCCL, RCCL, gloo", _flat(ring.ring_all_reduce), _anywhere, nccl=True),
    Algorithm("double binary tree", "NCCL, RCCL", _flat(algorithms.tree_all_reduce), _anywhere, nccl=True),
    Algorithm("halving-doubling", "MPI", _flat(algorithms.halving_doubling_all_reduce), _anywhere),
    Algorithm("one-shot", "torch symmetric memory", _flat(algorithms.one_shot_all_reduce), _one_node),
    Algorithm("two-shot", "torch symmetric memory", _flat(algorithms.two_shot_all_reduce), _one_node),
    Algorithm("hierarchical", "Horovod, by hand", _hierarchical, _several_nodes),
)
OTHERS: dict[str, tuple[Algorithm, ...]] = {
    "reduce-scatter": (
        Algorithm(RING, "NCCL, RCCL", _flat(ring.ring_reduce_scatter), _anywhere, nccl=True),
        Algorithm("recursive halving", "MPI", _flat(collectives.halving_reduce_scatter), _power_of_two),
    ),
    "all-gather": (
        Algorithm(RING, "NCCL, RCCL", _flat(ring.ring_all_gather), _anywhere, nccl=True),
        Algorithm("Bruck", "MPI", _flat(collectives.bruck_all_gather), _anywhere),
    ),
    "broadcast": (
        Algorithm("binomial tree", "MPI", _flat(collectives.binomial_broadcast), _anywhere),
        Algorithm("scatter + all-gather", "MPI", _flat(collectives.scatter_all_gather_broadcast), _anywhere),
        Algorithm("two trees", "MPI", _flat(collectives.two_tree_broadcast), _anywhere),
    ),
    "all-to-all": (
        Algorithm(
            "pairwise", "NCCL, RCCL, MPI", _flat(collectives.pairwise_all_to_all), _anywhere, nccl=True
        ),
        Algorithm("Bruck", "MPI", _flat(collectives.bruck_all_to_all), _anywhere),
    ),
}


def cheapest(family: Sequence[Algorithm], fabric: Fabric, size: Size) -> tuple[Algorithm, Cost]:
    """The cheapest algorithm of the family that the fabric allows; the first of them where several cost the same."""
    usable = [algorithm for algorithm in family if algorithm.refusal(fabric) is None]
    costs = [(algorithm, algorithm.cost(fabric, size)) for algorithm in usable]
    return min(costs, key=lambda pair: pair[1].total.base)


def library(family: Sequence[Algorithm]) -> tuple[Algorithm, ...]:
    """Those of the family that NCCL and RCCL choose from."""
    return tuple(algorithm for algorithm in family if algorithm.nccl)


def ranges(family: Sequence[Algorithm], fabric: Fabric) -> tuple[SizeRange, ...]:
    """Which algorithm is the cheapest from which size up to which, from `SMALLEST` to `LARGEST`, in order.

    Looks at four sizes an octave, so a range narrower than that can be missed; the borders themselves are exact.
    """
    octaves = (LARGEST / SMALLEST).as_integer_ratio()[0].bit_length() - 1
    sizes = [SMALLEST * 2 ** (step / _STEPS_AN_OCTAVE) for step in range(octaves * _STEPS_AN_OCTAVE + 1)]
    winners = [cheapest(family, fabric, size)[0].name for size in sizes]
    borders = [
        (_border(family, fabric, sizes[at - 1], sizes[at]), winners[at])
        for at in range(1, len(sizes))
        if winners[at] != winners[at - 1]
    ]
    ends = [*(border for border, _ in borders), None]
    names = [winners[0], *(name for _, name in borders)]
    return tuple(SizeRange(algorithm=name, up_to=end) for name, end in zip(names, ends, strict=True))


def _border(family: Sequence[Algorithm], fabric: Fabric, low: Size, high: Size) -> Size:
    """The size between two at which the cheapest algorithm changes."""
    before = cheapest(family, fabric, low)[0]
    for _ in range(_HALVINGS):
        middle = (low + high) * 0.5
        low, high = (middle, high) if cheapest(family, fabric, middle)[0] is before else (low, middle)
    return high


def candidates(family: Sequence[Algorithm], fabric: Fabric, size: Size) -> tuple[Candidate, ...]:
    """What each algorithm of the family costs for a size, or why the fabric is outside of its domain."""
    rows = []
    for algorithm in family:
        refusal = algorithm.refusal(fabric)
        cost = algorithm.cost(fabric, size) if refusal is None else None
        rows.append(Candidate(algorithm.name, algorithm.used_by, cost, refusal))
    return tuple(rows)


def choose(family: Sequence[Algorithm], fabric: Fabric, size: Size) -> Choice:
    """The cheapest for a size."""
    algorithm, cost = cheapest(family, fabric, size)
    return Choice(size, algorithm.name, cost)
