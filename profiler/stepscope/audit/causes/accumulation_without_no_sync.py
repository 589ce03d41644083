"""accumulation-without-no-sync: every micro-batch reduces all gradients, and only the last one's sum is used.

Priced by the replay with the collectives of all backward passes but a step's last taking no time and awaited by nobody.
Two optimizers that step in turn, or two models, are no accumulation: their passes reduce other gradients, or an optimizer
steps in between.
"""

from __future__ import annotations

import numpy as np

from stepscope.audit.case import Case, RankStep
from stepscope.audit.causes.finding import Description, in_step, mebibytes, priced
from stepscope.audit.causes.framework import DEEPSPEED, FSDP
from stepscope.audit.causes.rounds import Round, reducing_rounds, sizes_in_words, within
from stepscope.audit.result import Finding
from stepscope.replay.change import Change
from stepscope.replay.graph import StepGraph
from stepscope.trace import host


def detect(case: Case) -> list[Finding]:
    """One finding, if gradients were reduced before the last micro-batch."""
    examples = [(one, early) for one in case.rank_steps() if (early := _early(one))]
    if not examples:
        return []
    return priced(case, case.price(lambda graph: _synchronised_once(case, graph)), _describe(*examples[0]))


def _synchronised_once(case: Case, graph: StepGraph) -> Change | None:
    keys = [key for one in in_step(case, graph) for round_ in _early(one) for key in round_.keys]
    return Change(transfers=dict.fromkeys(keys, 0.0), unwaited=frozenset(keys)) if keys else None


def _early(one: RankStep) -> list[Round]:
    """The backward passes whose gradients the step's last one reduced again."""
    reduced = [round_ for round_ in reducing_rounds(one) if round_.reduced_within]
    if len(reduced) < 2:
        return []
    last = reduced[-1]
    return [
        round_
        for round_ in reduced[:-1]
        if round_.bytes == last.bytes and not _optimizer_stepped(one, round_.end, last.start)
    ]


def _optimizer_stepped(one: RankStep, after: int, before: int) -> bool:
    trace = one.recording.trace
    start = trace.events.start[host.select(trace, host.is_optimizer_step)]
    start = start[within(one.step.window, start)]
    return bool(np.any((start >= after) & (start < before)))


def _describe(one: RankStep, early: list[Round]) -> Description:
    return Description(
        cause="accumulation-without-no-sync",
        confidence="high: the same gradients were reduced once a micro-batch",
        evidence=[
            f"{len(early) + 1} backward passes before one optimizer step, and each reduces {mebibytes(early[0].bytes)}",
            f"each pass sends {sizes_in_words(early[0].ops)}; only the last pass, number {len(early) + 1}, need send any",
        ],
        fix=(
            "run forward and backward of all micro-batches but the last within model.no_sync(): the whole of both, since DDP "
            "decides in forward"
        ),
        fix_with={
            FSDP: "model.set_requires_gradient_sync(False) in all micro-batches but the last, if there is memory for gradients "
            "that are not sharded (FSDP1: model.no_sync())",
            DEEPSPEED: "DeepSpeed's ZeRO 1, which reduces in the last micro-batch only (2 and 3 reduce in each)",
        },
        reference="https://huggingface.co/docs/accelerate/concept_guides/gradient_synchronization",
    )
