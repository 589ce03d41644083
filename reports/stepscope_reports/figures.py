"""Sums and choices that the reports share; every figure comes from the audit."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, median

from stepscope.audit.result import Audit, Collective, Rank, RingModel, Span, Step, Timeline, Waterfall

WATERFALL = {
    "peer_wait_ms": ("waiting for a late rank", "no transfer"),
    "outside_backward_ms": ("outside backward", "forward's or the optimizer's"),
    "host_starved_ms": ("host-starved", "not the network's fault"),
    "device_blocked_ms": ("device blocked", "launched, but held back"),
    "late_launch_ms": ("launched late", "the bucket was ready before"),
    "queue_ms": ("queued", "behind other transfers"),
    "tail_ms": ("tail", "the last bucket's own transfer"),
    "unattributed_ms": ("unattributed", ""),
}
"""The parts of exposed time by their field in the audit: what they are called, and a remark."""

MAY_BE_WAITING = ("late_launch_ms", "queue_ms", "tail_ms")
"""Parts that hold waiting as well where it could not be told from transfer."""


def counted(audit: Audit) -> list[tuple[Rank, Step]]:
    """The (rank, step) pairs that the verdict rests on."""
    return [(rank, step) for rank in audit.ranks for step in rank.steps if step.valid]


def shown(audit: Audit, most: int) -> list[int]:
    """Places of the ranks that a table or picture has room for, in order: those waited for longest, then the first ones."""
    every = range(len(audit.ranks))
    if len(every) <= most:
        return list(every)
    place = {rank.rank: k for k, rank in enumerate(audit.ranks)}
    late = [place[row["rank"]] for row in audit.stragglers if row["total_ms"] > 0 and row["rank"] in place]
    first = set(late[: max(1, most // 4)])
    return sorted([*first, *[k for k in every if k not in first][: most - len(first)]])


def mean(values: Sequence[float | None]) -> float | None:
    """The mean of the values; None where there are none, or where one is missing: a mean of some would not add up."""
    known = [value for value in values if value is not None]
    return fmean(known) if known and len(known) == len(values) else None


@dataclass(frozen=True)
class Average:
    """An average over counted (rank, step) pairs; means, so that the parts add up to their sum. Times in ms."""

    wall: float
    comm: float
    exposed: float
    compute: float
    grad_comm: float | None
    grad_hidden_backward: float | None
    grad_hidden_other: float | None
    grad_exposed: float | None
    floor: float | None
    excess: float | None
    waterfall: dict[str, float]
    """The parts of the exposed time that every one of the steps has, by their field in the audit."""
    cost: float | None
    """Of the steps that have one: of many steps, only some are replayed."""


def average(steps: Sequence[Step]) -> Average | None:
    """The average step, or None without one."""
    if not steps:
        return None
    grads = [step.grad for step in steps if step.grad is not None]
    whole = grads if len(grads) == len(steps) else []
    priced = [step.cost_ms for step in steps if step.cost_ms is not None]
    return Average(
        wall=fmean(step.wall_ms for step in steps),
        comm=fmean(step.comm_ms for step in steps),
        exposed=fmean(step.exposed_ms for step in steps),
        compute=fmean(step.compute_ms for step in steps),
        grad_comm=mean([grad.comm_ms for grad in whole]),
        grad_hidden_backward=mean([grad.hidden_backward_ms for grad in whole]),
        grad_hidden_other=mean([grad.hidden_other_ms for grad in whole]),
        grad_exposed=mean([grad.exposed_ms for grad in whole]),
        floor=mean([grad.floor_ms for grad in whole]),
        excess=mean([grad.excess_ms for grad in whole]),
        waterfall=_waterfall(steps),
        cost=fmean(priced) if priced else None,
    )


def _waterfall(steps: Sequence[Step]) -> dict[str, float]:
    falls = [step.waterfall for step in steps]
    means = {
        name: mean([getattr(fall, name) if fall is not None else None for fall in falls])
        for name in Waterfall.__struct_fields__
    }
    return {name: value for name, value in means.items() if value is not None}


def replayed(audit: Audit) -> str | None:
    """What verdict and findings rest on, in words; None where it is every counted step of every rank, or none has a cost."""
    pairs = counted(audit)
    priced = [(rank, step) for rank, step in pairs if step.cost_ms is not None]
    steps, some_steps = ({step.step for _, step in of} for of in (pairs, priced))
    ranks, some_ranks = ({rank.source for rank, _ in of} for of in (pairs, priced))
    parts = []
    if 0 < len(some_steps) < len(steps):
        parts.append(f"{len(some_steps)} of {len(steps):,} counted steps, evenly spread")
    if 0 < len(some_ranks) < len(ranks):
        of_all = f"{len(some_ranks)} of {len(ranks):,} ranks"
        parts.append(f"{of_all}: those that the others wait for longest, and others evenly spread")
    return f"verdict and findings rest on {', on '.join(parts)}" if parts else None


def typical_step(audit: Audit) -> tuple[Rank, Step] | None:
    """The step to draw: of the first rank with a timeline, the counted step of median length, else its last one."""
    for rank in audit.ranks:
        drawable = [step for step in rank.steps if step.timeline is not None]
        valid = [step for step in drawable if step.valid]
        if valid:
            middle = median(step.wall_ms for step in valid)
            return rank, min(valid, key=lambda step: abs(step.wall_ms - middle))
        if drawable:
            return rank, drawable[-1]
    return None


def compute_lanes(lanes: Timeline) -> dict[str, list[Span]]:
    """The compute of a step to draw, by lane.

    *other*: what the audit counts as forward, which is whatever is neither backward nor an optimizer's, but began when backward
    was over, as the clipping of gradients does.
    """
    over = lanes.backward[-1][1] if lanes.backward else math.inf
    return {
        "forward": [span for span in lanes.forward if span[0] < over],
        "backward": lanes.backward,
        "other": [span for span in lanes.forward if span[0] >= over],
        "optimizer": lanes.optimizer,
    }


def of_step(audit: Audit, rank: Rank, step: Step) -> list[Collective]:
    """The collectives that one step of one file launched, in the order in which they started."""
    mine = (one for one in audit.collectives if one.source == rank.source and one.step == step.step)
    return sorted(mine, key=lambda one: one.start_ms)


@dataclass(frozen=True)
class Traffic:
    """Collectives of one kind, role and phase, summed. count, bytes and times over all that were summed."""

    kind: str
    role: str
    phase: str
    count: int
    bytes: int | None
    duration: float
    exposed: float


def other_traffic(audit: Audit) -> list[Traffic]:
    """What is not gradient traffic, by kind, role and phase, longest first: of the counted steps, else of the files."""
    pairs = {(rank.source, step.step) for rank, step in counted(audit)}
    groups: dict[tuple[str, str, str], list[Collective]] = {}
    for one in audit.collectives:
        if not one.gradient and (not pairs or (one.source, one.step) in pairs):
            groups.setdefault((one.kind, one.role, one.phase), []).append(one)
    rows = [_summed(*key, members) for key, members in groups.items()]
    return sorted(rows, key=lambda row: (-row.duration, row.kind, row.role, row.phase))


def _summed(kind: str, role: str, phase: str, members: Sequence[Collective]) -> Traffic:
    sizes = [one.bytes for one in members]
    known = [size for size in sizes if size is not None]
    return Traffic(
        kind=kind,
        role=role,
        phase=phase,
        count=len(members),
        bytes=sum(known) if len(known) == len(sizes) else None,
        duration=sum(one.duration_ms for one in members),
        exposed=sum(one.exposed_ms for one in members),
    )


KINDS = {
    "all_reduce": "all-reduce",
    "reduce_scatter": "reduce-scatter",
    "all_gather": "all-gather",
    "all_to_all": "all-to-all",
    "send_recv": "send/receive",
}
"""Kinds of collectives as they are written; the others as in the audit."""


@dataclass(frozen=True)
class Waited:
    """How long one rank waited for others in one counted step, all its collectives together."""

    rank: int
    step: int
    waited_ms: float


def waiting(audit: Audit) -> list[Waited]:
    """A row a rank and counted step; empty where waiting could not be told from transfer."""
    pairs = {(rank.source, step.step) for rank, step in counted(audit)}
    sums: dict[tuple[int, int], float] = {}
    for one in audit.collectives:
        if one.rank is None or one.step is None or one.wait_ms is None or (one.source, one.step) not in pairs:
            continue
        sums[one.rank, one.step] = sums.get((one.rank, one.step), 0.0) + one.wait_ms
    return [Waited(rank, step, total) for (rank, step), total in sorted(sums.items())]


def ring_bandwidth(model: RingModel, size: float) -> float:
    """The bus bandwidth in GB/s that a ring model has at a message size in bytes."""
    passes = 2 if model.kind == "all_reduce" else 1
    hops = passes * (model.group_size - 1)
    carried = hops / model.group_size * size
    transfer_ms = carried / (model.gb_per_s * 1e6)
    return carried / ((hops * (model.alpha_ms or 0.0) + transfer_ms) * 1e6)
