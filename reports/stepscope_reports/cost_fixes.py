"""What to do about the communication of a step, in sentences with their figures."""

from __future__ import annotations

from collections.abc import Iterable

from rich.text import Text

from stepscope.budget.result import Accumulation, Budget, Communication, Hierarchical, IntraNode
from stepscope.units import milliseconds, percent
from stepscope_reports.plain import paragraph


def fixes(budget: Budget, communication: Communication, width: int) -> Iterable[tuple[str, list[Text]]]:
    """Title and text of each fix."""
    made = communication.fixes
    yield _accumulation_title(made.accumulation), paragraph(_accumulation(budget, made.accumulation), width)
    yield "ZeRO", paragraph(_zero(budget, communication), width)
    yield "the group inside a node", paragraph(_intra_node(budget, made.intra_node), width)
    yield "hierarchical all-reduce", paragraph(_hierarchical(budget, made.hierarchical), width)


def _accumulation_title(made: Accumulation) -> str:
    return f"accumulate {made.micro_batches} micro-batches"


def _accumulation(budget: Budget, made: Accumulation) -> str:
    how = (
        f"From ZeRO 2 on every micro-batch reduces its own gradients, so the share is {percent(made.share)} even so; "
        "keeping whole gradients (no_sync) would give up the memory that the stage saves."
        if budget.zero >= 2
        else f"One reduction an optimizer step: {milliseconds(made.communication.ms)} are {percent(made.share)} of "
        f"{milliseconds(made.compute.ms)} of compute, {percent(made.exposed_efficiency)} efficient even fully exposed. In DDP "
        "the micro-batches before the last need no_sync()."
    )
    return f"{how} The global batch grows with it: mind the critical batch size."


def _zero(budget: Budget, communication: Communication) -> str:
    plain, two, three = budget.memory[0], budget.memory[2], budget.memory[3]
    gather = _parameter_gather(communication)
    return (
        f"Stage 2 keeps {two.total.gib:.2f} GiB instead of {plain.total.gib:.1f} (parameters {two.parameters.gib:.2f}, the rest "
        f"{(two.gradients + two.optimizer).gib:.2f}); the wire volume is unchanged, for an all-reduce is a reduce-scatter and an "
        f"all-gather. Of the two, the all-gather of parameters ({milliseconds(gather)}) comes after the optimizer step, where no "
        f"backward hides it. The memory buys a larger micro-batch, which improves the share as accumulation does. Stage 3 keeps "
        f"{three.total.gib:.2f} GiB for {three.volume:g} times the volume."
    )


def _parameter_gather(communication: Communication) -> float:
    """The ring's all-gather of all parameters, in ms."""
    rows = [
        row for other in communication.others if other.collective == "all-gather" for row in other.candidates
    ]
    return next(row.cost.total.ms for row in rows if row.name == "ring" and row.cost is not None)


def _node(count: int, *, assumed: bool) -> str:
    return f"a node of {count} (assumed; --gpus-per-node sets it)" if assumed else f"a node of {count}"


def _intra_node(budget: Budget, made: IntraNode) -> str:
    if made.ranks_per_node is None or made.cost is None:
        return f"Does not apply: {made.refusal}."
    node = _node(made.ranks_per_node, assumed=bool(made.node_assumed))
    figures = f"{milliseconds(made.cost.total.ms)} ({percent(made.share or 0.0)} of the step)"
    if made.available:
        return (
            f"All {budget.ranks} ranks fit in {node}; over the link inside it an all-reduce takes {figures}."
        )
    return (
        f"Over the link inside a node an all-reduce would take {figures}, but {budget.ranks} ranks do not fit in {node}. "
        "A smaller data-parallel group can be had by tensor or pipeline parallelism across nodes."
    )


def _hierarchical(budget: Budget, made: Hierarchical) -> str:
    if made.ranks_per_node is None or made.cost is None or made.across is None or made.shared_uplink is None:
        return f"Does not apply: {made.refusal}."
    node = _node(made.ranks_per_node, assumed=bool(made.node_assumed))
    inside = made.cost.total - made.across.total
    return (
        f"With {node}: reduce-scatter and all-gather inside, {milliseconds(inside.ms)}; all-reduce of 1/{made.ranks_per_node} of "
        f"the message across {made.nodes} nodes, {milliseconds(made.across.total.ms)}; together "
        f"{milliseconds(made.cost.total.ms)} ({percent(made.share or 0.0)} of the step). That is with a link of its own to the "
        f"other nodes for each rank; where a node's ranks share one, {milliseconds(made.shared_uplink.total.ms)}."
    )
