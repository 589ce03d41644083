"""zero1-parameter-broadcast: after its share of the update each rank sends the parameters, with no compute beside it.

Priced by the replay without that traffic. The memory that ZeRO-1 saves is not part of the price.
"""

from __future__ import annotations

from stepscope.audit.case import Case, RankStep
from stepscope.audit.causes.finding import Description, priced
from stepscope.audit.causes.taken_out import first_with, in_words, price_without
from stepscope.audit.result import Finding
from stepscope.trace import roles
from stepscope.trace.recording import CollectiveOp, Phase


def detect(case: Case) -> list[Finding]:
    """One finding, if the parameters' way to the other ranks cost anything."""
    example = first_with(case, _parameters)
    if example is None:
        return []
    description = Description(
        cause="zero1-parameter-broadcast",
        confidence="high: launched by the optimizer",
        evidence=[in_words(example[1]), "launched within Optimizer.step, which waits for them"],
        fix=(
            "ZeroRedundancyOptimizer(..., overlap_with_ddp=True) with torch.distributed.algorithms.ddp_comm_hooks."
            "ddp_zero_hook.hook_with_zero_step; or DDP's plain optimizer, if its state fits into memory; or fully_shard, "
            "which gathers parameters under forward"
        ),
        reference="https://github.com/pytorch/pytorch/issues/67570",
    )
    return priced(case, price_without(case, _parameters), description)


def _parameters(one: RankStep) -> list[CollectiveOp]:
    return [op for op in one.ops if op.role == roles.PARAMETER and op.phase == Phase.OPTIMIZER]
