"""The same collective on every rank (METRICS section 3).

Collectives pair by process group and sequence number where the trace has them, else by order within (step, group, kind,
size). Where the ranks disagree in how many there are, none of that class is paired and it is said: shifting the rest
would lay each beside its neighbour's partner.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from stepscope.trace import collectives
from stepscope.trace.recording import CollectiveOp, Recording


@dataclass(frozen=True, slots=True)
class Paired:
    """One collective operation with its executions: index of the recording to what that rank saw of it."""

    members: dict[int, CollectiveOp]

    @property
    def kind(self) -> str:
        """What the operation does."""
        return next(iter(self.members.values())).kind

    @property
    def synchronising(self) -> bool:
        """Whether no data moves before the last rank arrives, so that all ranks end together."""
        return self.kind in collectives.SYNCHRONISING

    @property
    def wire(self) -> int:
        """Transfer time in ns: the shortest of the ranks' durations, that of the one which did not have to wait."""
        return min(op.end - op.start for op in self.members.values())

    @property
    def last(self) -> int:
        """The recording that arrived last."""
        return min(self.members, key=lambda index: self.members[index].end - self.members[index].start)


@dataclass(frozen=True, slots=True)
class Pairing:
    """All collectives that could be laid side by side, and in words those that could not."""

    paired: tuple[Paired, ...] = ()
    mispaired: tuple[str, ...] = ()
    complete: bool = True
    """Every rank of the run is there; else the shortest duration may still hold waiting for one that is not."""

    def wires(self, index: int) -> dict[int, int]:
        """For one recording, row of a collective to its transfer time in ns, where waiting can be told from it."""
        return {
            one.members[index].row: one.wire
            for one in self.paired
            if one.synchronising and index in one.members
        }


def pair(recordings: Sequence[Recording]) -> Pairing:
    """Pair the collectives of one run's recordings; nothing is paired where a rank was recorded twice or is unknown."""
    ranks = [recording.header.rank for recording in recordings]
    if len(recordings) < 2 or None in ranks or len(set(ranks)) < len(ranks):
        return Pairing(complete=False)
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
    worlds = [recording.header.world_size for recording in recordings]
    return Pairing(tuple(paired), tuple(mispaired), all(world == len(ranks) for world in worlds))


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
