"""reduced-outside-backward: a loop or one flat tensor after backward reduces the gradients, and DDP's reducer does not.

Priced by the replay with the gradients in DDP's buckets, each sent when its last gradient had arrived, and without the loop's
calls. One bucket, or a compiled backward, also sends everything at the end, but from within backward.
"""

from __future__ import annotations

from collections.abc import Sequence

from stepscope.audit.case import Case, RankStep
from stepscope.audit.causes.finding import Description, mebibytes, milliseconds, priced
from stepscope.audit.causes.framework import DEEPSPEED, deepspeed_buckets
from stepscope.audit.causes.rounds import Round, reducing_rounds, sizes_in_words
from stepscope.audit.causes.taken_out import calls_of
from stepscope.audit.recommend import remedy
from stepscope.audit.result import Finding
from stepscope.trace.recording import CollectiveOp, Phase


def detect(case: Case) -> list[Finding]:
    """One finding, if gradients were reduced after backward and buckets within it would have hidden some."""
    found = remedy(case, _after_backward, calls_of(case, _reductions))
    return priced(case, found.price, _describe(found.example, found.cap_mb)) if found else []


def _reductions(one: RankStep) -> Sequence[CollectiveOp]:
    round_ = _after_backward(one)
    return round_.ops if round_ else ()


def _after_backward(one: RankStep) -> Round | None:
    reduced = reducing_rounds(one)
    if not reduced or any(op.phase == Phase.BACKWARD for round_ in reduced for op in round_.ops):
        return None
    return reduced[-1]


def _describe(example: Round, cap_mb: float) -> Description:
    first, last = example.ops[0], example.ops[-1]
    return Description(
        cause="reduced-outside-backward",
        confidence="high: the reductions were launched after backward, by no hook of its",
        evidence=[
            f"{mebibytes(example.bytes)} of gradients are reduced after backward: {sizes_in_words(example.ops, 'collective')}",
            f"the first is launched {milliseconds(first.launch - example.end)} after backward's last compute, the last ends "
            f"{milliseconds(last.end - example.end)} after it; {milliseconds(example.end - example.start)} of backward "
            "passed with nothing on the wire",
        ],
        fix=(
            f"let DistributedDataParallel(..., bucket_cap_mb={cap_mb:g}) reduce during backward (no no_sync in the last "
            "micro-batch), and clip what it reduced: clip_grad_norm_ after backward needs no all-reduce of its own"
        ),
        fix_with={DEEPSPEED: deepspeed_buckets(cap_mb, example.element_size)},
        reference="https://docs.pytorch.org/docs/stable/notes/ddp.html",
    )
