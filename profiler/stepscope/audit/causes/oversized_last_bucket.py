"""oversized-last-bucket: one parameter makes the last bucket far larger than the others, and nothing is left to hide it.

The last bucket's own transfer is the floor, no fault; what it takes beyond a bucket of the others' size is. Priced by the
replay with its transfer shortened to theirs. A large embedding is the usual one: its gradient comes last, and a parameter
is never split.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate

from stepscope.audit.case import Case, RankStep
from stepscope.audit.causes import names
from stepscope.audit.causes.finding import Description, in_step, mebibytes, milliseconds, priced
from stepscope.audit.causes.framework import FSDP
from stepscope.audit.causes.rounds import Round, reducing_rounds
from stepscope.audit.result import Finding
from stepscope.replay.change import Change
from stepscope.replay.graph import StepGraph
from stepscope.stats import median
from stepscope.trace.recording import CollectiveOp

_OVERSIZED = 3
"""How many times the median of the other buckets it is."""
_ONE_PARAMETER = 0.5
"""The share of the bucket's bytes that is one parameter's."""
_END = 0.9
"""A bucket that is sent after so much of backward is a last one: a small one may follow it."""


@dataclass(frozen=True, slots=True)
class _Oversized:
    """A backward and the place of its oversized bucket; sizes in bytes."""

    round: Round
    place: int
    usual: float
    parameter: int

    @property
    def op(self) -> CollectiveOp:
        return self.round.ops[self.place]


def detect(case: Case) -> list[Finding]:
    """One finding, if the last bucket's excess cost anything."""
    examples = [oversized for one in case.rank_steps() if (oversized := _oversized(one))]
    if not examples:
        return []
    return priced(case, case.price(lambda graph: _evened(case, graph)), _describe(case, examples[0]))


def _evened(case: Case, graph: StepGraph) -> Change | None:
    found = [oversized for one in in_step(case, graph) if (oversized := _oversized(one))]
    factors = {one.round.keys[one.place]: one.usual / (one.op.bytes or 1) for one in found}
    return Change(transfers=factors) if factors else None


def _oversized(one: RankStep) -> _Oversized | None:
    reduced = reducing_rounds(one)
    if not reduced or len(reduced[-1].ops) < 2 or not reduced[-1].reduced_within or not reduced[-1].complete:
        return None
    last = reduced[-1]
    late = last.start + _END * (last.end - last.start)
    places = [place for place, op in enumerate(last.ops) if last.sent(op) >= late]
    if not places:
        return None
    place = max(places, key=lambda place: last.ops[place].bytes or 0)
    size = last.ops[place].bytes or 0
    usual = median([op.bytes or 0 for k, op in enumerate(last.ops) if k != place])
    parameter = _largest(last, place)
    oversized = size >= _OVERSIZED * usual and parameter >= _ONE_PARAMETER * size
    return _Oversized(last, place, usual, parameter) if oversized else None


def _largest(round_: Round, place: int) -> int:
    """The largest gradient of a bucket in bytes, by counting elements in order of arrival."""
    before = sum(op.elements or 0 for op in round_.ops[:place])
    until = before + (round_.ops[place].elements or 0)
    arrived = list(accumulate(gradient.elements for gradient in round_.gradients))
    inside = [g.elements for g, end in zip(round_.gradients, arrived, strict=True) if before < end <= until]
    return max(inside, default=0) * round_.element_size


def _describe(case: Case, example: _Oversized) -> Description:
    op, round_ = example.op, example.round
    name = names.of_size(case.run, example.parameter // round_.element_size)
    parameter = f"one parameter, {name}," if name else "one parameter"
    return Description(
        cause="oversized-last-bucket",
        confidence="high: sizes and arrivals were recorded",
        evidence=[
            f"the last bucket holds {mebibytes(op.bytes or 0)}, the others {mebibytes(example.usual)} in the median; "
            f"{parameter} is {mebibytes(example.parameter)} of it",
            f"it is sent {milliseconds(round_.end - op.launch)} before backward's end and takes "
            f"{milliseconds(op.end - op.start)}",
        ],
        fix=(
            "make the parameter smaller (rows that are never used, a vocabulary too large), shard it (FSDP2's fully_shard on "
            "that module, or rows across ranks), or sparse=True with an optimizer for sparse gradients"
        ),
        fix_with={
            FSDP: "call fully_shard on the module that holds the parameter, so that it is a unit of its own; or make it smaller "
            "(rows that are never used, a vocabulary too large)"
        },
        reference="https://github.com/NVIDIA/Megatron-LM/pull/4408",
    )
