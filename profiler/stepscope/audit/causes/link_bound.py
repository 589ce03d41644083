"""link-bound: the gradients' bytes take longer on this link than backward lasts, so no schedule hides them.

Only what has to be sent counts: of accumulated micro-batches the last one's reduction, of a transfer not its latency, and
no waiting for other ranks. Priced by the replay with those transfers taking no time: what an endlessly fast link brings.
"""

from __future__ import annotations

from stepscope.audit import rebucket
from stepscope.audit.case import Case, RankStep
from stepscope.audit.causes.finding import Description, in_step, mebibytes, milliseconds, priced
from stepscope.audit.causes.framework import DEEPSPEED, FSDP
from stepscope.audit.causes.rounds import Round, reducing_rounds
from stepscope.audit.result import Finding
from stepscope.replay.change import Change
from stepscope.replay.graph import StepGraph

_MOST = 0.5


def detect(case: Case) -> list[Finding]:
    """One finding, if in most steps the gradients do not fit into backward."""
    if all(one.step.fits for one in case.rank_steps()):
        return []
    link = rebucket.link_of(case)
    last = [round_ for one in case.rank_steps() if (round_ := _last(one)) is not None]
    if link is None or not last:
        return []
    too_long = [round_ for round_ in last if _on_the_wire(round_, link) > round_.end - round_.start]
    if len(too_long) <= _MOST * len(last):
        return []
    return priced(case, case.price(lambda graph: _at_once(case, graph)), _describe(too_long[0], link))


def _at_once(case: Case, graph: StepGraph) -> Change | None:
    keys = [key for one in in_step(case, graph) if (round_ := _last(one)) is not None for key in round_.keys]
    return Change(transfers=dict.fromkeys(keys, 0.0)) if keys else None


def _last(one: RankStep) -> Round | None:
    reduced = reducing_rounds(one)
    return reduced[-1] if reduced else None


def _on_the_wire(round_: Round, link: rebucket.Link) -> float:
    return link.per_byte * round_.bytes


def _describe(example: Round, link: rebucket.Link) -> Description:
    length = example.end - example.start
    return Description(
        cause="link-bound",
        confidence="high: transfers without waiting for other ranks; the price is an upper bound, for a link without limit",
        evidence=[
            f"{mebibytes(example.bytes)} of gradients take {milliseconds(_on_the_wire(example, link))} on the wire at "
            f"{1 / link.per_byte:.2f} GB/s, and backward lasts {milliseconds(length)}",
            "no bucket size hides all of it: that takes fewer bytes or a faster link",
        ],
        fix=(
            "send less: gradient accumulation with no_sync, torch.distributed.algorithms.ddp_comm_hooks."
            "default_hooks.bf16_compress_hook, a larger batch per rank; or use a faster link"
        ),
        fix_with={
            FSDP: "send less: MixedPrecisionPolicy(reduce_dtype=torch.bfloat16), a larger batch per rank, a 2-D mesh that shards "
            "within a node and replicates between nodes; or use a faster link",
            DEEPSPEED: 'send less: DeepSpeed\'s "communication_data_type": "bf16", a larger batch per rank; or use a faster link',
        },
        reference="https://discuss.pytorch.org/t/136017",
    )
