"""float32-gradients: gradients cross the wire in float32 where bfloat16 would need half the time."""

from __future__ import annotations

from stepscope.audit.case import Case, RankStep
from stepscope.audit.causes.finding import Description, in_step, keys_of, priced
from stepscope.audit.result import Finding
from stepscope.replay.change import Change
from stepscope.replay.graph import StepGraph
from stepscope.trace.recording import CollectiveOp


def detect(case: Case) -> list[Finding]:
    """One finding, where sending them in half the time would make the step shorter by 1 % or more."""
    return priced(case, case.price(lambda graph: _in_half_the_time(case, graph)), _DESCRIPTION)


def _in_half_the_time(case: Case, graph: StepGraph) -> Change | None:
    keys = [key for one in in_step(case, graph) for key in keys_of(one, _in_float32(one))]
    return Change(transfers=dict.fromkeys(keys, 0.5)) if keys else None


def _in_float32(one: RankStep) -> list[CollectiveOp]:
    ops = one.basis.ops_of.get(one.number, [])
    return [op for op in ops if op.gradient and op.dtype is not None and op.dtype.name == "float32"]


_DESCRIPTION = Description(
    cause="float32-gradients",
    confidence="medium: latency is halved too, which bfloat16 would not do",
    evidence=["gradients are sent in float32"],
    fix="torch.distributed.algorithms.ddp_comm_hooks.default_hooks.bf16_compress_hook",
    reference="https://docs.pytorch.org/docs/stable/ddp_comm_hooks.html",
)
