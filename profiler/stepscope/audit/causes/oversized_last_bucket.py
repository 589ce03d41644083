"""oversized-last-bucket: one parameter makes the last bucket far larger than the others, and nothing is left to hide it.

The last bucket's own transfer is the floor, no fault; what it takes beyond a bucket of the others' size is. Priced by the
replay with its transfer shortened to theirs. A large embedding is the usual one: its gradient comes last, and a parameter
is never split.
"""

from __future__ import annotations

from stepscope.audit.case import Case, RankStep
from stepscope.audit.causes import rebucket
from stepscope.audit.causes.finding import Description, in_step, mebibytes, milliseconds, priced
from stepscope.audit.causes.rounds import Round, reducing_rounds
from stepscope.audit.result import Finding
from stepscope.replay.change import Change
from stepscope.replay.graph import StepGraph
from stepscope.stats import median

_OVERSIZED = 3
"""How many times the median of the other buckets the last one is."""
_ONE_PARAMETER = 0.5
"""The share of the bucket's bytes that is one parameter's."""


def detect(case: Case) -> list[Finding]:
    """One finding, if the last bucket's excess cost anything."""
    examples = [oversized for one in case.rank_steps() if (oversized := _oversized(one))]
    if not examples:
        return []
    return priced(case, case.price(lambda graph: _evened(case, graph)), _describe(examples[0]))


def _evened(case: Case, graph: StepGraph) -> Change | None:
    rounds = [oversized for one in in_step(case, graph) if (oversized := _oversized(one))]
    return rebucket.together(
        [Change(transfers={r.keys[-1]: _usual(r) / (r.ops[-1].bytes or 1)}) for r in rounds]
    )


def _usual(round_: Round) -> float:
    """The size of the other buckets."""
    return median([op.bytes or 0 for op in round_.ops[:-1]])


def _largest(round_: Round) -> int:
    """The largest gradient of the last bucket in bytes: the last ones to arrive are in it."""
    left, largest = round_.ops[-1].elements or 0, 0
    for gradient in reversed(round_.gradients):
        largest, left = max(largest, gradient.elements), left - gradient.elements
        if left <= 0:
            break
    return largest * round_.element_size


def _oversized(one: RankStep) -> Round | None:
    reduced = reducing_rounds(one)
    if not reduced or len(reduced[-1].ops) < 2 or not reduced[-1].reduced_within or not reduced[-1].complete:
        return None
    last = reduced[-1]
    size = last.ops[-1].bytes or 0
    oversized = size >= _OVERSIZED * _usual(last) and _largest(last) >= _ONE_PARAMETER * size
    return last if oversized else None


def _describe(example: Round) -> Description:
    last = example.ops[-1]
    return Description(
        cause="oversized-last-bucket",
        confidence="high: sizes and arrivals were recorded",
        evidence=[
            f"the last bucket holds {mebibytes(last.bytes or 0)}, the others {mebibytes(_usual(example))} in the median; one "
            f"parameter is {mebibytes(_largest(example))} of it",
            f"it is sent {milliseconds(example.end - last.launch)} before backward's end and takes "
            f"{milliseconds(last.end - last.start)}",
        ],
        fix=(
            "make the parameter smaller (rows that are never used, a vocabulary too large), shard it (FSDP2's fully_shard on "
            "that module, or rows across ranks), or sparse=True with an optimizer for sparse gradients"
        ),
        reference="https://github.com/NVIDIA/Megatron-LM/pull/4408",
    )
