"""The same collective on every rank (METRICS section 3).

Collectives pair by process group and sequence number where the trace has them, else by order within (step, group, kind,
size). Where the ranks disagree in how many there are, none of that class is paired and it is said: shifting the rest
would lay each beside its neighbour's partner.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from stepscope.ranks.doubts import Doubt, doubts_after, doubts_before
from stepscope.ranks.paired import Paired
from stepscope.trace.recording import CollectiveOp, Recording


@dataclass(frozen=True, slots=True)
class Pairing:
    """All collectives that could be laid side by side, in words those that could not, and what makes the pairs less sure."""

    paired: tuple[Paired, ...] = ()
    mispaired: tuple[str, ...] = ()
    doubts: tuple[Doubt, ...] = ()

    def wires(self, index: int) -> dict[int, int]:
        """For one recording, row of a collective to its transfer time in ns, where waiting can be told from it."""
        return {
            one.members[index].row: one.wire
            for one in self.paired
            if one.synchronising and index in one.members
        }


def pair(recordings: Sequence[Recording]) -> Pairing:
    """Pair the collectives of one run's recordings; nothing is paired where they are no set of ranks of one run.

    InputError where they certainly are of different runs, and together tell nothing.
    """
    doubts = doubts_before(recordings)
    if len(recordings) < 2 or any(doubt.grave for doubt in doubts):
        return Pairing(doubts=tuple(doubts))
    paired, mispaired = _side_by_side(recordings)
    more = doubts_after(recordings, paired, mispaired)
    if any(doubt.grave for doubt in more):
        paired = []
    return Pairing(tuple(paired), tuple(mispaired), (*doubts, *more))


def _side_by_side(recordings: Sequence[Recording]) -> tuple[list[Paired], list[str]]:
    """The pairs, and in words what the ranks disagree about."""
    ranks = [recording.header.rank for recording in recordings]
    classes: dict[Hashable, dict[int, list[CollectiveOp]]] = defaultdict(lambda: defaultdict(list))
    for index, recording in enumerate(recordings):
        for op in sorted(recording.collectives, key=lambda op: (op.launch, op.start)):
            classes[_class_of(op)][index].append(op)
    paired: list[Paired] = []
    mispaired: list[str] = []
    for found in classes.values():
        counts = {len(ops) for ops in found.values()}
        if len(counts) == 1 and len(found) >= _expected(found, recordings):
            paired.extend(
                Paired(dict(zip(found, ops, strict=True))) for ops in zip(*found.values(), strict=True)
            )
        else:
            mispaired.append(_complaint(found, ranks))
    return paired, mispaired


_UNEVEN = frozenset({"all_to_all", "all_gather", "gather", "scatter"})
"""Kinds in which each rank may contribute another size."""


def _class_of(op: CollectiveOp) -> Hashable:
    if op.sequence is not None and op.group is not None:
        return (op.group, op.sequence, op.kind)
    size = None if op.kind in _UNEVEN else op.elements
    return (op.step, op.group, op.kind, size)


def _expected(found: dict[int, list[CollectiveOp]], recordings: Sequence[Recording]) -> int:
    """How many of these recordings must have the collective: all, unless its group is smaller than the run."""
    op = next(iter(found.values()))[0]
    world = recordings[0].header.world_size
    if op.group_size is not None and op.group_size != world:
        return 2
    return len(recordings)


def _complaint(found: dict[int, list[CollectiveOp]], ranks: Sequence[int | None]) -> str:
    op = next(iter(found.values()))[0]
    counts = ", ".join(f"{len(found.get(index, []))} on rank {rank}" for index, rank in enumerate(ranks))
    return f"{op.kind} of {op.elements or 'unknown'} elements in step {op.step}: {counts}"
