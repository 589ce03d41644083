"""bucket-too-small: so many small buckets that latency takes the link's time, not bytes.

Priced by the replay with the same gradients in the buckets of a larger `bucket_cap_mb`, and the latency paid once for
each, as is the host's call. Only buckets of DDP's reducer count: a loop by hand, tensor-parallel and
SyncBatchNorm traffic are small for other reasons.
"""

from __future__ import annotations

from stepscope.audit import rebucket
from stepscope.audit.cap_rule import CAPS_MIB, Candidate, alike, middle
from stepscope.audit.case import Case
from stepscope.audit.causes.finding import Description, in_step, mebibytes, milliseconds, priced
from stepscope.audit.causes.framework import DEEPSPEED, FSDP, deepspeed_buckets
from stepscope.audit.causes.rounds import Round, reducing_rounds
from stepscope.audit.causes.taken_out import Pick, calls_of
from stepscope.audit.result import Finding
from stepscope.replay.assignment import MIB
from stepscope.replay.change import Change
from stepscope.replay.graph import StepGraph
from stepscope.stats import median
from stepscope.units import NS_PER_MS

_MANY = 8
_LATENCY_SHARE = 0.3
"""Where latency takes less than this share of a bucket's time, the bucket is not too small."""


def detect(case: Case) -> list[Finding]:
    """One finding, if larger buckets would bring anything."""
    if not any(_are_many(round_) for one in case.rank_steps() for round_ in reducing_rounds(one)):
        return []
    link = rebucket.link_of(case)
    if link is None or not link.latency:
        return []
    cap = _best_cap(case, link)
    if cap is None:
        return []
    price = case.price(lambda graph: _merged(case, graph, link, cap * MIB))
    example = next(r for one in case.rank_steps() for r in reducing_rounds(one) if _is_latency_bound(r, link))
    return priced(case, price, _describe(example, link, cap))


def _best_cap(case: Case, link: rebucket.Link) -> float | None:
    """The `bucket_cap_mb` of the one rule, by the replay of one step; None where none brings anything."""
    graph = next(iter(case.graphs.values()))
    rounds = [r for one in in_step(case, graph) for r in reducing_rounds(one) if _is_latency_bound(r, link)]
    candidates = []
    for cap in CAPS_MIB:
        change = _merged(case, graph, link, cap * MIB)
        if change is not None:
            saved = list(graph.saved(change).values())
            buckets = rebucket.cut(case, rounds[0], [cap * MIB]).bytes
            candidates.append(Candidate(cap, buckets, {graph.step: sum(saved) / len(saved)}))
    present = [op.bytes or 0 for op in rounds[0].ops] if rounds else []
    tied = alike(candidates, (case.step_ms or 0.0) * NS_PER_MS, present)
    return middle(tied).cap_mb if tied else None


def _merged(case: Case, graph: StepGraph, link: rebucket.Link, cap: float) -> Change | None:
    chosen = [r for one in in_step(case, graph) for r in reducing_rounds(one) if _is_latency_bound(r, link)]
    calls = case.shared("calls of small buckets", lambda: calls_of(case, _small(link)))
    return rebucket.remade(case, graph, chosen, link, [cap], calls.get(graph.step, ()))


def _small(link: rebucket.Link) -> Pick:
    """What picks the collectives of the backwards with too many small buckets."""
    return lambda one: [op for r in reducing_rounds(one) if _is_latency_bound(r, link) for op in r.ops]


def _are_many(round_: Round) -> bool:
    sized = all(op.bytes is not None for op in round_.ops)
    return len(round_.ops) >= _MANY and round_.reduced_within and sized


def _is_latency_bound(round_: Round, link: rebucket.Link) -> bool:
    if not _are_many(round_):
        return False
    modelled = sum(link.time(op.bytes or 0) for op in round_.ops)
    return len(round_.ops) * link.latency >= _LATENCY_SHARE * modelled


def _describe(example: Round, link: rebucket.Link, cap_mb: float) -> Description:
    size = median([op.bytes or 0 for op in example.ops])
    return Description(
        cause="bucket-too-small",
        confidence="medium: latency and rate are a line fitted to transfers of the sizes that were there",
        evidence=[
            f"{len(example.ops)} buckets in a backward pass, {mebibytes(size)} in the median, {mebibytes(example.bytes)} in all",
            f"a collective takes {milliseconds(link.latency)} whatever it carries, "
            f"and its median bytes {milliseconds(link.per_byte * size)}",
        ],
        fix=f"DistributedDataParallel(..., bucket_cap_mb={cap_mb:g}); record again and compare",
        fix_with={
            FSDP: "let a unit hold several layers: fully_shard([layer, next_layer]), or fully_shard on the block that holds them",
            DEEPSPEED: deepspeed_buckets(cap_mb, example.element_size),
        },
        reference="https://github.com/pytorch/pytorch/issues/118421",
    )
