"""warm-up-step: only steps were recorded in which DDP does not work as it will: one bucket, buckets being rebuilt.

The verdict leaves such steps out, so this speaks only where no other step is there. Priced by the replay of those steps
with the gradients in DDP's later buckets, and without the agreement on new ones.
"""

from __future__ import annotations

from dataclasses import replace

from stepscope.audit import rebucket
from stepscope.audit.case import Case, RankStep
from stepscope.audit.causes.finding import Description, in_step, keys_of, priced
from stepscope.audit.causes.rounds import Round, reducing_rounds, sizes_in_words
from stepscope.audit.recommend import best_cap
from stepscope.audit.result import Finding
from stepscope.replay.assignment import MIB
from stepscope.replay.change import Change
from stepscope.replay.graph import StepGraph, build
from stepscope.trace import roles
from stepscope.trace.recording import CollectiveOp

_REASON = "warm-up"


def detect(case: Case) -> list[Finding]:
    """One finding, if there is no other step and the warm-up cost it anything."""
    if any(True for _ in case.rank_steps()):
        return []
    warm = _of_warm_up_steps(case)
    ones = list(warm.rank_steps())
    if not ones:
        return []
    chosen = rebucket.choose(warm, _in_one_bucket)
    link = rebucket.link_of(warm)
    cap = best_cap(warm, chosen, link) if link is not None else None

    def settled(graph: StepGraph) -> Change | None:
        keys = [key for one in in_step(warm, graph) for key in keys_of(one, _bookkeeping(one))]
        without = Change(transfers=dict.fromkeys(keys, 0.0), unwaited=frozenset(keys))
        if link is None or cap is None:
            return without
        buckets = rebucket.remade(warm, graph, chosen.get(graph.step, []), link, [cap * MIB])
        return rebucket.together([without, buckets or Change()])

    return priced(warm, warm.price(settled), _describe(case, ones))


def _of_warm_up_steps(case: Case) -> Case:
    """The same job with its warm-up steps taken for valid."""
    parts = [
        (
            replace(
                basis, invalid={n: why for n, why in basis.invalid.items() if not why.startswith(_REASON)}
            ),
            steps,
        )
        for basis, steps in case.parts
    ]
    numbers = sorted(
        {
            step.window.number
            for basis, steps in parts
            for step in steps
            if step.window.number not in basis.invalid
        }
    )
    drawn = {number: build(case.recordings, case.pairing, number) for number in numbers}
    graphs = {number: graph for number, graph in drawn.items() if graph is not None}
    return replace(case, parts=parts, graphs=graphs)


def _in_one_bucket(one: RankStep) -> Round | None:
    reduced = reducing_rounds(one)
    return reduced[-1] if reduced and reduced[-1].reduced_within and len(reduced[-1].ops) == 1 else None


def _bookkeeping(one: RankStep) -> list[CollectiveOp]:
    wanted = (roles.REBUILD, roles.UNUSED_MAP)
    return [op for op in one.ops if op.role in wanted]


def _describe(case: Case, ones: list[RankStep]) -> Description:
    reasons = sorted(
        {
            f"step {number}: {why}"
            for basis, _ in case.parts
            for number, why in basis.invalid.items()
            if why.startswith(_REASON)
        }
    )
    buckets = [op for op, _ in ones[0].step.buckets]
    return Description(
        cause="warm-up-step",
        confidence="high: DDP's own agreement on buckets, or the step's number, says it",
        evidence=[*reasons, f"the step reduces {sizes_in_words(buckets)}"],
        fix="record later steps: stepscope run --warmup 6; in a script, torch.profiler.schedule(wait=5, warmup=1, active=3)",
        reference="https://github.com/pytorch/pytorch/pull/35137",
    )
