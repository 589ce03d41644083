"""How a step shows that DDP searches for unused parameters."""

from __future__ import annotations

from stepscope.audit.case import RankStep
from stepscope.audit.causes.rounds import host_rows
from stepscope.trace import roles
from stepscope.trace.recording import CollectiveOp

SEARCH = "torch.distributed.ddp.reducer::search_unused_parameters"


def unused_maps(one: RankStep) -> list[CollectiveOp]:
    """The all-reduces of the map of used parameters in a rank's step."""
    return [op for op in one.ops if op.role == roles.UNUSED_MAP]


def searches_unused(one: RankStep) -> bool:
    """Whether a step was run with find_unused_parameters."""
    return bool(unused_maps(one)) or len(host_rows(one, SEARCH)) > 0
