"""How a step shows that DDP searches for unused parameters, and whether there were any."""

from __future__ import annotations

from collections.abc import Iterable

from stepscope.audit.case import Case, RankStep
from stepscope.audit.causes.rounds import host_rows, reducing_rounds
from stepscope.audit.result import Finding, Warning
from stepscope.trace import roles
from stepscope.trace.recording import CollectiveOp

SEARCH = "torch.distributed.ddp.reducer::search_unused_parameters"


def unused_maps(one: RankStep) -> list[CollectiveOp]:
    """The all-reduces of the map of used parameters in a rank's step."""
    return [op for op in one.ops if op.role == roles.UNUSED_MAP]


def searches_unused(one: RankStep) -> bool:
    """Whether a step was run with find_unused_parameters."""
    return bool(unused_maps(one)) or len(host_rows(one, SEARCH)) > 0


def needless_search(case: Case, findings: Iterable[Finding]) -> list[Warning]:
    """A word on a search that found nothing, where it costs too little for a finding."""
    steps = case.rank_steps()
    told = any(finding.cause == "find-unused-parameters" for finding in findings)
    if told or not steps or not all(searches_unused(one) and _all_used(one) for one in steps):
        return []
    return [
        Warning(
            code="needless-search",
            message=(
                "find_unused_parameters=True, and every parameter got a gradient in every recorded step: DDP searches for "
                "nothing, and never puts its buckets into the order in which gradients arrive. No cost of 1 % of the step "
                "or more was found here; set it to False all the same, if that is so in every step"
            ),
        )
    ]


def _all_used(one: RankStep) -> bool:
    """Whether the gradients that backward made are, to the element, what was reduced."""
    reduced = reducing_rounds(one)
    return bool(reduced) and all(
        round_.complete
        and sum(g.elements for g in round_.gradients) == sum(op.elements or 0 for op in round_.ops)
        for round_ in reduced
    )
