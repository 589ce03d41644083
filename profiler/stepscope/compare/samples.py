"""An audit as samples: every figure once a step, so that two audits can be compared with an interval."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from operator import attrgetter
from statistics import fmean

from stepscope.audit.bucket_figures import Figures, Reduced, StepKey, figures
from stepscope.audit.result import Audit, Collective, Rank, Step, Waterfall

Samples = dict[str, list[float]]
"""A figure's name to its values, one a counted step; absent where it was measured in none."""

STEP_FIGURES = ("compute_ms", "comm_ms", "exposed_ms", "cost_ms")
GRADIENT_FIGURES = ("comm_ms", "hidden_backward_ms", "hidden_other_ms", "exposed_ms", "floor_ms", "excess_ms")
WATERFALL_FIGURES = tuple(f"waterfall.{name}" for name in Waterfall.__struct_fields__)
STEP, COMPUTE, COST_SHARE, OVERLAP = "step_ms", "compute_ms", "cost_share", "overlap_backward"


def samples_of(audit: Audit) -> Samples:
    """Every figure of the counted steps, each step the mean over its ranks."""
    steps = list(counted(audit).values())
    found: Samples = {name: _means(steps, attrgetter(name)) for name in STEP_FIGURES}
    found[STEP] = _means(steps, step_ms)
    found[COST_SHARE] = _means(steps, _cost_share)
    found[OVERLAP] = [share for ranks in steps if (share := _overlap(ranks)) is not None]
    for name in (*(f"grad.{figure}" for figure in GRADIENT_FIGURES), *WATERFALL_FIGURES):
        found[name] = _means(steps, _inner(*name.split(".")))
    return {name: values for name, values in found.items() if values}


def counted(audit: Audit) -> dict[StepKey, list[Step]]:
    """The steps that the verdict counts, each with what every rank measured of it."""
    steps: dict[StepKey, list[Step]] = defaultdict(list)
    for key, _, step in _counted(audit):
        steps[key].append(step)
    return steps


def _counted(audit: Audit) -> Iterator[tuple[StepKey, Rank, Step]]:
    recordings: Counter[int | None] = Counter()
    for rank in audit.ranks:
        for step in rank.steps:
            if step.valid:
                yield (recordings[rank.rank], step.step), rank, step
        if rank.rank is not None:
            recordings[rank.rank] += 1


def bucket_samples(audit: Audit) -> dict[int, Samples]:
    """Of each row of the audit's buckets: how long it took, how much of it was exposed and hidden, in every counted step."""
    keys = {(rank.source, step.step): key for key, rank, step in _counted(audit)}
    launched: dict[tuple[str, int], list[Collective]] = defaultdict(list)
    for one in audit.collectives:
        if one.gradient and one.step is not None and (one.source, one.step) in keys:
            launched[one.source, one.step].append(one)
    seen: dict[int, list[Reduced]] = defaultdict(list)
    for source_step, mine in launched.items():
        for place, one in enumerate(sorted(mine, key=_launch)):
            ran = Reduced(keys[source_step], one.duration_ms, one.exposed_ms, one.hidden_backward_ms or 0.0)
            seen[place % max(1, len(audit.buckets))].append(ran)  # each pass has all of them
    return {bucket: _bucket(figures(ran)) for bucket, ran in sorted(seen.items())}


def _launch(one: Collective) -> float:
    return one.start_ms if one.launch_ms is None else one.launch_ms


def _bucket(of_steps: Figures) -> Samples:
    return {
        "duration_ms": of_steps.duration,
        "exposed_ms": of_steps.exposed,
        "hidden_share": of_steps.hidden_share,
    }


def _means(steps: Sequence[Sequence[Step]], figure: Callable[[Step], float | None]) -> list[float]:
    """The mean over ranks of every step in which all ranks have the figure."""
    rows = [[figure(step) for step in ranks] for ranks in steps]
    whole = [[value for value in row if value is not None] for row in rows]
    return [fmean(known) for row, known in zip(rows, whole, strict=True) if len(known) == len(row)]


def _inner(part: str, name: str) -> Callable[[Step], float | None]:
    """Takes a figure of a part of the step, where the step has that part."""

    def figure(step: Step) -> float | None:
        value: float | None = getattr(getattr(step, part), name, None)
        return value

    return figure


def step_ms(step: Step) -> float:
    """How long a step took; its window on the host where an older audit says no more."""
    return step.wall_ms if step.step_ms is None else step.step_ms


def _cost_share(step: Step) -> float | None:
    return step.cost_ms / step_ms(step) if step.cost_ms is not None and step_ms(step) else None


def _overlap(ranks: Sequence[Step]) -> float | None:
    """The share of the step's gradient communication that backward hid, over all ranks."""
    grads = [step.grad for step in ranks if step.grad is not None]
    comm = sum(grad.comm_ms for grad in grads)
    return sum(grad.hidden_backward_ms for grad in grads) / comm if comm else None
