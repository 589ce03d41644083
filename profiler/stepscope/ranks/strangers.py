"""Files that can't be ranks of one run, whatever their headers say: in a group that both are in they reduce other gradients.

A collective is one operation of all ranks of its group, of one size on each. Ranks of other groups (pipeline stages, tensor
parallelism, experts) differ as they like, and a file that was cut off has fewer; so a group counts only where its ranks are
known, and what differs is told only where nothing at all is alike.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from stepscope.errors import InputError
from stepscope.ranks.process_groups import Ranks, known_groups
from stepscope.trace.recording import CollectiveOp, Recording
from stepscope.trace.steps import BY_PROFILER, NO_STEP

_Operation = tuple[str, int]
"""Kind and number of elements."""


@dataclass(slots=True)
class _Made:
    """What one recording made in one group, within whole steps."""

    gradients: set[_Operation] = field(default_factory=set)
    all: set[_Operation] = field(default_factory=set)

    def shares_nothing(self, other: _Made) -> bool:
        return (
            bool(self.gradients and other.gradients)
            and self.gradients.isdisjoint(other.all)
            and other.gradients.isdisjoint(self.all)
        )


def strangers(recordings: Sequence[Recording]) -> str | None:
    """In words, which two files have no gradient collective in common; None where there are none.

    InputError where they are two ranks that recorded a step of the same number: then it was not the same step.
    """
    found = None
    for made in _by_group(recordings).values():
        first = next(iter(made))
        for other in made:
            if not made[first].shares_nothing(made[other]):
                continue
            one, two = recordings[first], recordings[other]
            kind, elements = _largest(made[first])
            sizes = f"{kind} of {elements:,} elements against {_largest(made[other])[1]:,}, for one"
            found = f"{one.source} and {two.source} have no gradient collective in common ({sizes})"
            if one.header.rank != two.header.rank and _numbered(one) & _numbered(two):
                raise InputError(
                    f"{found}, so they are not the ranks of one run; audit each run or window by itself, or lay two beside "
                    "each other with `stepscope compare`"
                )
    return found


def _by_group(recordings: Sequence[Recording]) -> dict[Ranks, dict[int, _Made]]:
    """Of each group the recordings that reduced gradients in it, by their place."""
    found: dict[Ranks, dict[int, _Made]] = defaultdict(lambda: defaultdict(_Made))
    for index, recording in enumerate(recordings):
        for op, ranks in _placed(recording):
            assert op.elements is not None
            made = found[ranks][index]
            made.all.add((op.kind, op.elements))
            if op.gradient:
                made.gradients.add((op.kind, op.elements))
    return found


def _placed(recording: Recording) -> Iterator[tuple[CollectiveOp, Ranks]]:
    """The operations of whole steps whose size and ranks are known, this one among them."""
    groups = known_groups(recording.header)
    only = next(iter(groups.values())) if len(set(groups.values())) == 1 else None
    for op in recording.collectives:
        ranks = only if op.group is None else groups.get(op.group)
        if ranks and recording.header.rank in ranks and op.elements is not None and op.step != NO_STEP:
            yield op, ranks


def _numbered(recording: Recording) -> set[int]:
    """The steps that the training itself numbered."""
    steps = recording.steps
    return {window.number for window in steps.windows} if steps.found_by == BY_PROFILER else set()


def _largest(made: _Made) -> _Operation:
    return max(made.gradients, key=lambda operation: operation[1])
