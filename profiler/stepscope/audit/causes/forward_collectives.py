"""forward-collectives: buffers broadcast by DDP at each forward, and SyncBatchNorm's statistics, with nothing beside them.

Priced by the replay without them. Tensor-parallel traffic, embeddings exchanged by all-to-all and FSDP's gathers are
part of forward and no fault.
"""

from __future__ import annotations

from collections.abc import Sequence

from stepscope.audit.case import Case, RankStep
from stepscope.audit.causes.finding import Description, priced
from stepscope.audit.causes.taken_out import first_with, in_words, price_without
from stepscope.audit.result import Finding
from stepscope.trace import roles
from stepscope.trace.recording import CollectiveOp


def detect(case: Case) -> list[Finding]:
    """One finding, if they cost anything."""
    example = first_with(case, in_forward)
    if example is None:
        return []
    return priced(case, price_without(case, in_forward), _describe(example[1]))


def in_forward(one: RankStep) -> list[CollectiveOp]:
    """A rank's collectives that forward waits for and a model could do without; with SyncBatchNorm, backward's as well."""
    mine = [op for op in one.ops if _whole_group(one, op)]
    statistics = [
        op for op in mine if op.role == roles.ACTIVATION and op.kind in ("all_gather", "all_reduce")
    ]
    synchronised = any("SyncBatchNorm" in name for name in one.recording.trace.names)
    return [op for op in mine if op.role == roles.BUFFER] + (statistics if synchronised else [])


def _whole_group(one: RankStep, op: CollectiveOp) -> bool:
    return op.group_size in (None, one.recording.header.world_size)


def _describe(ops: Sequence[CollectiveOp]) -> Description:
    buffers = sum(op.role == roles.BUFFER for op in ops)
    fixes = []
    if buffers:
        fixes.append(
            "DistributedDataParallel(..., broadcast_buffers=False), if ranks may keep buffers of their own"
        )
    if buffers < len(ops):
        fixes.append("BatchNorm without torch.nn.SyncBatchNorm, or another norm (GroupNorm, LayerNorm)")
    forwards = {op.phase.name.lower() for op in ops}
    return Description(
        cause="forward-collectives",
        confidence="high: launched within forward and recorded as such",
        evidence=[
            in_words(ops),
            f"launched in {' and '.join(sorted(forwards))}, where the next operator waits for them",
        ],
        fix="; ".join(fixes),
        reference="https://github.com/pytorch/pytorch/issues/30718",
    )
