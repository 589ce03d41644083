"""The same collective on every rank (METRICS section 3).

Collectives pair by process group and sequence number where the trace has them, else by order within (step, group, kind,
size). Where the ranks disagree in how many there are, none of that class is paired and it is said: shifting the rest
would lay each beside its neighbour's partner.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from itertools import islice

from stepscope.ranks.doubts import Doubt, doubts_after, doubts_before, groups_unknown
from stepscope.ranks.paired import Paired
from stepscope.ranks.process_groups import Ranks, divisions, known_groups
from stepscope.trace.recording import CollectiveOp, Recording
from stepscope.trace.steps import NO_STEP


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
    paired, mispaired, undecided = _side_by_side(recordings)
    more = doubts_after(recordings, paired, mispaired)
    if any(doubt.grave for doubt in more):
        paired = []
    return Pairing(tuple(paired), tuple(mispaired), (*doubts, *groups_unknown(undecided), *more))


_Class = dict[int, list[CollectiveOp]]
"""Like operations, by the place of the recording that made them."""


def _side_by_side(recordings: Sequence[Recording]) -> tuple[list[Paired], list[str], int]:
    """The pairs, in words what the ranks disagree about, and how many operations may be of several groups."""
    ranks = [recording.header.rank for recording in recordings]
    classes: dict[Hashable, _Class] = defaultdict(lambda: defaultdict(list))
    for index, recording in enumerate(recordings):
        for op in sorted(recording.collectives, key=lambda op: (op.launch, op.start)):
            classes[_class_of(op)][index].append(op)
    groups = _groups_by_rank(recordings)
    paired: list[Paired] = []
    mispaired: list[str] = []
    undecided = 0
    for found in classes.values():
        ways = _ways(found, recordings, groups)
        if len(ways) == 1:
            paired.extend(pairs for members in ways[0] for pairs in _pairs(found, members))
        elif ways:
            undecided += sum(map(len, found.values()))
        elif _one_of(found).step != NO_STEP:
            # of what is not recorded whole some ranks have less
            mispaired.append(_complaint(found, ranks))
    return paired, mispaired, undecided


def _one_of(found: _Class) -> CollectiveOp:
    return next(iter(found.values()))[0]


def _groups_by_rank(recordings: Sequence[Recording]) -> dict[int, set[Ranks]] | None:
    """The groups of several ranks that each rank is in; None where a file does not describe them."""
    described = {
        rank: {group for group in known_groups(recording.header).values() if rank in group and len(group) > 1}
        for recording in recordings
        if (rank := recording.header.rank) is not None
    }
    return described if all(described.values()) else None


def _ways(
    found: _Class, recordings: Sequence[Recording], groups: dict[int, set[Ranks]] | None
) -> list[list[list[int]]]:
    """How like operations may be divided among process groups: the recordings of each; none, one way, or two of more."""
    op = _one_of(found)
    if op.group is None and groups is not None:
        at = {recording.header.rank: index for index, recording in enumerate(recordings)}
        counts = {
            rank: len(found[index]) for rank, index in at.items() if rank is not None and index in found
        }
        return [
            [[at[rank] for rank in sorted(members)] for members in way]
            for way in islice(divisions(counts, groups), 2)
        ]
    alike = len({len(ops) for ops in found.values()}) == 1
    return [[list(found)]] if alike and len(found) >= _expected(found, recordings) else []


def _pairs(found: _Class, members: Sequence[int]) -> list[Paired]:
    if len(members) < 2:
        return []
    return [
        Paired(dict(zip(members, ops, strict=True)))
        for ops in zip(*(found[index] for index in members), strict=True)
    ]


_UNEVEN = frozenset({"all_to_all", "all_gather", "gather", "scatter"})
"""Kinds in which each rank may contribute another size."""


def _class_of(op: CollectiveOp) -> Hashable:
    if op.sequence is not None and op.group is not None:
        return (op.group, op.sequence, op.kind)
    size = None if op.kind in _UNEVEN else op.elements
    return (op.step, op.group, op.kind, size)


def _expected(found: _Class, recordings: Sequence[Recording]) -> int:
    """How many of these recordings must have the collective: all, unless its group is smaller than the run."""
    op = _one_of(found)
    world = recordings[0].header.world_size
    if op.group_size is not None and op.group_size != world:
        return 2
    return len(recordings)


def _complaint(found: _Class, ranks: Sequence[int | None]) -> str:
    op = _one_of(found)
    counts = ", ".join(f"{len(found.get(index, []))} on rank {rank}" for index, rank in enumerate(ranks))
    return f"{op.kind} of {op.elements or 'unknown'} elements in step {op.step}: {counts}"
