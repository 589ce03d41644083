"""wait-edge-in-backward: backward stands still until a gradient collective is over, and what comes after it is serialised.

A communication hook that waits for its own all-reduce does so; waiting at the end of backward is right. On a CPU the
thread that computes is the one that waits; `wait_edge_on_device` looks at streams. Priced by the replay in which no
thread waits for the buckets after which backward goes on; the last one is waited for in any case.
"""

from __future__ import annotations

from itertools import pairwise

from stepscope.audit.case import Case, RankStep
from stepscope.audit.causes.finding import Description, in_step, milliseconds, priced
from stepscope.audit.causes.framework import DEEPSPEED, FSDP
from stepscope.audit.causes.rounds import Round, reducing_rounds
from stepscope.audit.result import Finding
from stepscope.replay.change import Change
from stepscope.replay.graph import StepGraph
from stepscope.replay.joined import Key
from stepscope.replay.network import Edge
from stepscope.stats import median

_MOST = 0.5
"""A backward that waits for a smaller share of its buckets was held up by chance."""


def detect(case: Case) -> list[Finding]:
    """One finding, if waits within backward cost anything."""
    one_by_one = [one for one in case.rank_steps() if any(map(_in_turn, reducing_rounds(one)))]
    waiting = [
        (one, waits)
        for one in one_by_one
        if one.number in case.graphs and (waits := _waits(case.graphs[one.number], one))
    ]
    if not waiting:
        return []
    return priced(case, case.price(lambda graph: _unblocked(case, graph)), _describe(*waiting[0]))


def _in_turn(round_: Round) -> bool:
    """Whether most collectives were launched after the one before was over, as where each is waited for."""
    later = sum(after.launch >= before.end for before, after in pairwise(round_.ops))
    return round_.reduced_within and later > _MOST * (len(round_.ops) - 1)


def _unblocked(case: Case, graph: StepGraph) -> Change | None:
    keys = [key for one in in_step(case, graph) for key in _waits(graph, one)]
    return Change(unblocked=frozenset(keys)) if keys else None


def _waits(graph: StepGraph, one: RankStep) -> list[Key]:
    """The collectives that a rank's backward waited for; empty unless they are most of its buckets."""
    if one.recording.device != "cpu":
        return []
    reduced = [round_ for round_ in reducing_rounds(one) if round_.reduced_within]
    found = [key for round_ in reduced for key in _within(graph, round_)]
    buckets = sum(len(round_.ops) - 1 for round_ in reduced)
    return found if len(found) > _MOST * buckets else []


def _within(graph: StepGraph, round_: Round) -> list[Key]:
    """The collectives for which a thread waited and went on before backward was over, the last one left out."""
    network, over = graph.network, round_.end + graph.shifts[round_.index]
    early = (network.kind == Edge.BLOCK) & (network.time[network.target] < over)
    waited = set(zip(network.owner[early].tolist(), network.row[early].tolist(), strict=True))
    return [key for key in round_.keys[:-1] if key in waited]


def _describe(one: RankStep, waits: list[Key]) -> Description:
    ops = [op for round_ in reducing_rounds(one) for op in round_.ops]
    took = median([op.end - op.launch for op in ops])
    return Description(
        cause="wait-edge-in-backward",
        confidence="high: backward went on only when the collectives were over, and did nothing meanwhile",
        evidence=[
            f"backward stands still {len(waits)} times until one of its {len(ops)} collectives is over, "
            f"{milliseconds(took)} after its launch in the median (step {one.number}, rank {one.rank})"
        ],
        fix=(
            "let the communication hook return the future and not wait for it: "
            "dist.all_reduce(bucket.buffer(), async_op=True).get_future().then(lambda f: f.value()[0])"
        ),
        fix_with={
            FSDP: "fewer and larger units (fully_shard on a block, not on each of its layers): on a CPU FSDP waits for each "
            "unit's reduction, and no setting makes it go on; on GPUs it does not wait",
            DEEPSPEED: 'DeepSpeed\'s "overlap_comm": true, on GPUs; on a CPU it waits for every bucket, so try a larger '
            "reduce_bucket_size",
        },
        reference="https://docs.pytorch.org/docs/stable/ddp_comm_hooks.html",
    )
