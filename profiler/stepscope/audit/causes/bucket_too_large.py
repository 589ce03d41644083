"""bucket-too-large: so few buckets that the first leaves when backward is nearly over, with nothing left to hide behind.

Priced by the replay with the same gradients in the buckets that a smaller `bucket_cap_mb` would have made of them, each
sent when its last gradient had arrived. A model whose gradients all arrive at once (a compiled backward in one piece)
gains nothing by that, and there is no finding.
"""

from __future__ import annotations

from stepscope.audit.case import Case, RankStep
from stepscope.audit.causes.finding import Description, mebibytes, milliseconds, priced
from stepscope.audit.causes.framework import DEEPSPEED, FSDP, deepspeed_buckets
from stepscope.audit.causes.rounds import Round, reducing_rounds, sizes_in_words
from stepscope.audit.causes.unused import searches_unused
from stepscope.audit.recommend import remedy
from stepscope.audit.result import Finding
from stepscope.replay.assignment import DEFAULT_BYTES, MIB

_FEW = 2
_LATE = 0.5
"""A first bucket that is sent before so much of backward has passed leaves the rest of it to hide behind."""


def detect(case: Case) -> list[Finding]:
    """One finding, if smaller buckets would bring anything."""
    found = remedy(case, _with_few_buckets)
    if found is None or found.cap_mb * MIB >= max(op.bytes or 0 for op in found.example.ops):
        return []  # what would help is no smaller one
    return priced(case, found.price, _describe(case, found.example, found.cap_mb))


def _where(case: Case, example: Round) -> str:
    """The step and rank that the example is of: the table of buckets has medians over all of them."""
    rank = case.recordings[example.index].header.rank
    return f"in step {example.ops[0].step}{'' if rank is None else f' of rank {rank}'} "


def _with_few_buckets(one: RankStep) -> Round | None:
    reduced = reducing_rounds(one)
    if not reduced or searches_unused(one) or not reduced[-1].reduced_within or len(reduced[-1].ops) > _FEW:
        return None
    last = reduced[-1]
    length = last.end - last.start
    return last if last.first_sent - last.start >= _LATE * length else None


def _describe(case: Case, example: Round, cap_mb: float) -> Description:
    passed = example.first_sent - example.start
    length = example.end - example.start
    evidence = [
        f"all {mebibytes(example.bytes)} of gradients go in {sizes_in_words(example.ops)}",
        f"{_where(case, example)}the first is sent {milliseconds(passed)} into a backward of {milliseconds(length)}: "
        f"{milliseconds(max(0, length - passed))} are left to hide it behind",
    ]
    if example.bytes < DEFAULT_BYTES:
        evidence.append("the whole model fits into one bucket of DDP's default size, 25 MiB")
    return Description(
        cause="bucket-too-large",
        confidence="high: each gradient's arrival was recorded; the other buckets' transfers are computed from it",
        evidence=evidence,
        fix=f"DistributedDataParallel(..., bucket_cap_mb={cap_mb:g}); record again and compare",
        fix_with={
            FSDP: "call fully_shard on every layer and on the whole model last: each is a unit, reduced while backward goes on",
            DEEPSPEED: deepspeed_buckets(cap_mb, example.element_size),
        },
        reference="https://arxiv.org/abs/2006.15704",
    )
