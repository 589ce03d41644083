"""extra-collectives: metrics, flags and barriers reduced in every step or micro-batch, which no update needs.

Each makes all ranks wait for the slowest, and between two buckets it holds up the later one. Priced by the replay without
them; ranks that one of them brought together then meet at the next collective. SyncBatchNorm's, the reducer's and
FSDP's are no metrics, nor is the norm of its gradients that DeepSpeed reduces last before the optimizer.
"""

from __future__ import annotations

from collections.abc import Sequence

from stepscope.audit.case import Case, RankStep
from stepscope.audit.causes.finding import Description, priced
from stepscope.audit.causes.forward_collectives import in_forward
from stepscope.audit.causes.framework import DEEPSPEED, framework_of
from stepscope.audit.causes.taken_out import first_with, in_words, price_without
from stepscope.audit.result import Finding
from stepscope.trace import roles
from stepscope.trace.recording import CollectiveOp, Phase


def detect(case: Case) -> list[Finding]:
    """One finding, if they cost anything."""
    extra = _beside_the_norm if framework_of(case) == DEEPSPEED else _extra
    example = first_with(case, extra)
    if example is None:
        return []
    return priced(case, price_without(case, extra), _describe(*example))


def _extra(one: RankStep) -> list[CollectiveOp]:
    """A rank's metrics and barriers, and small reductions that a hook of the script's makes within backward."""
    named = [op for op in one.ops if op.role in (roles.METRIC, roles.BARRIER) or _is_small_in_backward(op)]
    belongs_to_forward = {op.row for op in in_forward(one)}
    return [op for op in named if op.row not in belongs_to_forward]


def _beside_the_norm(one: RankStep) -> list[CollectiveOp]:
    ops = _extra(one)
    numbers = [op for op in ops if op.kind == "all_reduce" and op.elements == 1]
    norm = max(numbers, key=lambda op: op.launch, default=None)
    return [op for op in ops if op is not norm]


def _is_small_in_backward(op: CollectiveOp) -> bool:
    return (
        op.role == roles.ACTIVATION
        and op.phase == Phase.BACKWARD
        and (op.elements or 0) in range(1, roles.METRIC_ELEMENTS + 1)
    )


def _describe(one: RankStep, ops: Sequence[CollectiveOp]) -> Description:
    places = sorted({op.phase.name.lower() for op in ops})
    evidence = [in_words(ops), f"launched in {' and '.join(places)}"]
    buckets = [op for op, _ in one.step.buckets]
    if buckets:
        between = sum(buckets[0].launch < op.launch < buckets[-1].launch for op in ops)
        if between:
            evidence.append(f"{between} of them between the first and the last bucket of gradients")
    return Description(
        cause="extra-collectives",
        confidence="high: collectives that carry neither gradients nor parameters",
        evidence=evidence,
        fix=(
            "add metrics up on each rank and reduce them once every N steps (dist.all_reduce after the optimizer step, or "
            "async_op=True and read later); leave dist.barrier() out of the step"
        ),
        fix_with={
            DEEPSPEED: "add the script's metrics up on each rank and reduce them once every N steps; those of DeepSpeed itself "
            "stay (a norm of each further group of parameters, the overflow check of fp16)"
        },
        reference="https://github.com/modelscope/ms-swift/pull/9966",
    )
