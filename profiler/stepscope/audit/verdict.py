"""The label and its reasons, from the measured steps (METRICS section 7)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from stepscope.audit import again
from stepscope.audit.beside import Apart
from stepscope.audit.overlap import Overlap
from stepscope.audit.result import Thresholds, Verdict
from stepscope.audit.step import MeasuredStep
from stepscope.audit.wording import (
    BELOW_THRESHOLD,
    COMM_BOUND,
    COMM_SENSITIVE,
    COMPUTE_BOUND,
    HIDDEN_NOW,
    INCONCLUSIVE,
    NO_COMMUNICATION,
    NOT_WAITED_FOR,
    Facts,
    confidence,
    explanation,
    next_step,
    nothing_to_hide,
    undecided_cost,
    undecided_share,
)
from stepscope.ranks.doubts import Doubt
from stepscope.stats import bootstrap_interval, group_means, median
from stepscope.units import NS_PER_MS


@dataclass(frozen=True, slots=True)
class Sample:
    """One valid step of one rank. window tells repeated recordings of the same rank and step apart."""

    rank: int | None
    window: int
    step: MeasuredStep
    host_starved_share: float | None

    @property
    def cost_share(self) -> float:
        """Cost of communication over the measured step."""
        return self.step.cost / self.step.took

    @property
    def step_ms(self) -> float:
        """How long the step took, in ms."""
        return self.step.took / NS_PER_MS

    @property
    def comm_share(self) -> float:
        """Communication over the step without its cost."""
        return self.step.overlap.comm / max(1, self.step.took - self.step.cost)


@dataclass(frozen=True, slots=True)
class Figure:
    """A figure of the steps: median over steps of the mean over ranks, and its interval if there are two steps or more."""

    value: float
    interval: tuple[float, float] | None

    @classmethod
    def of(cls, samples: Sequence[Sample], figure: str) -> Figure:
        """The one called `figure` ("cost_share", "comm_share" or "step_ms") over all samples."""
        values = group_means(((one.window, one.step.window.number), getattr(one, figure)) for one in samples)
        return cls(median(values), bootstrap_interval(values))

    def above(self, threshold: float) -> bool | None:
        """Whether it lies above a threshold; None if the interval holds both answers."""
        if self.interval is not None and self.interval[0] <= threshold < self.interval[1]:
            return None
        return self.value > threshold


@dataclass(frozen=True, slots=True)
class Setting:
    """What is known of the recordings beside their steps.

    gates: the reasons, if any, why they can't carry a verdict. any_comm: whether any collective was seen. doubts: about the
    files as a set. waits: how it is known who waits for whom, see `result.Verdict`. run: run.json, where there is one.
    """

    gates: Sequence[str]
    any_comm: bool
    world_size: int | None
    doubts: Sequence[Doubt] = ()
    waits: str | None = None
    contention: Apart | None = None
    run: Mapping[str, Any] | None = None


def judge(
    samples: Sequence[Sample],
    setting: Setting,
    thresholds: Thresholds,
    measured: Sequence[MeasuredStep] | None = None,
) -> Verdict:
    """The verdict over all valid steps. measured: the same steps of all ranks, where the samples are those of some."""
    steps = [sample.step for sample in samples] if measured is None else measured
    gates, any_comm = setting.gates, setting.any_comm
    host_bound = _host_bound(samples, thresholds)
    if gates or (any_comm and not samples):
        return _inconclusive(gates or ("no valid step was recorded",), host_bound, thresholds, setting.run)
    if not any_comm:
        return _no_communication(setting.world_size, host_bound, thresholds)
    cost, comm = Figure.of(samples, "cost_share"), Figure.of(samples, "comm_share")
    by_rank = _rank_medians(samples)
    facts = _facts(samples, setting, thresholds, _label(samples, cost, comm, thresholds), host_bound)
    apart = setting.contention
    return Verdict(
        label=facts.label,
        reason=facts.reason,
        host_bound=host_bound,
        step_ms=Figure.of(samples, "step_ms").value,
        cost_share=cost.value,
        cost_share_ci=cost.interval,
        cost_replayed=facts.replayed,
        comm_share=comm.value,
        comm_share_ci=comm.interval,
        rank_spread=(min(by_rank), max(by_rank)) if len(by_rank) > 1 else None,
        overlap_backward=_overlap_backward([step.gradient for step in steps]),
        overlap_backward_wire=_overlap_backward([step.gradient_wire for step in steps]),
        headroom=facts.headroom,
        contention_ms=apart.ms if apart else None,
        contention_ms_ci=apart.interval if apart else None,
        contention_compared=apart.compared if apart else None,
        waits=setting.waits,
        confidence=confidence(facts),
        thresholds=thresholds,
        explanation=explanation(facts),
        next_step=next_step(facts),
    )


def _facts(
    samples: Sequence[Sample],
    setting: Setting,
    thresholds: Thresholds,
    named: tuple[str, str],
    host_bound: bool,
) -> Facts:
    label, reason = named
    return Facts(
        label=label,
        reason=reason,
        thresholds=thresholds,
        headroom=_headroom(samples, thresholds) if label == COMM_SENSITIVE else None,
        replayed=all(s.step.priced is not None for s in samples),
        ranks=len({s.rank for s in samples}),
        steps=len({(s.window, s.step.window.number) for s in samples}),
        host_bound=host_bound,
        sharded=_is_sharded(samples),
        waits=setting.waits,
        contention=setting.contention,
        doubts=setting.doubts,
        run=setting.run,
    )


def _no_communication(world_size: int | None, host_bound: bool, thresholds: Thresholds) -> Verdict:
    why, then = nothing_to_hide(world_size)
    return Verdict(
        label=NO_COMMUNICATION,
        reason="no collective ran in the recorded steps",
        host_bound=host_bound,
        thresholds=thresholds,
        explanation=why,
        next_step=then,
    )


def _inconclusive(
    gates: Sequence[str], host_bound: bool, thresholds: Thresholds, run: Mapping[str, Any] | None
) -> Verdict:
    return Verdict(
        label=INCONCLUSIVE,
        reason="; ".join(gates),
        host_bound=host_bound,
        thresholds=thresholds,
        explanation="The recording can't carry a verdict; figures that could be measured are given all the same.",
        next_step=f"record again: {again.record_again(run)}",
    )


def _label(samples: Sequence[Sample], cost: Figure, comm: Figure, thresholds: Thresholds) -> tuple[str, str]:
    bound, heavy = cost.above(thresholds.cost_share), comm.above(thresholds.comm_share)
    if bound is None:
        other = COMPUTE_BOUND if heavy is False else COMM_SENSITIVE
        return INCONCLUSIVE, undecided_cost(other, thresholds)
    if bound:
        return COMM_BOUND, _main_reason(samples)
    if heavy is None:
        return INCONCLUSIVE, undecided_share(comm.value, comm.interval, thresholds)
    if not heavy:
        return COMPUTE_BOUND, "little communication"
    return COMM_SENSITIVE, _why_no_more(samples, thresholds)


def _why_no_more(samples: Sequence[Sample], thresholds: Thresholds) -> str:
    """Why communication that takes much of the step costs little of it."""
    comm, exposed = (sum(getattr(s.step.overlap, name) for s in samples) for name in ("comm", "exposed"))
    much = median([s.step.overlap.exposed / s.step.took for s in samples]) > thresholds.cost_share
    if much and 2 * sum(s.step.cost for s in samples) < exposed:
        return NOT_WAITED_FOR
    return BELOW_THRESHOLD if 2 * exposed > comm else HIDDEN_NOW


def _main_reason(samples: Sequence[Sample]) -> str:
    """Waiting, outside backward, serialised or link: what most of the exposed time comes from.

    Gradient traffic that would fit into backward is serialised, whatever the floor says: the floor is that of the buckets
    as they are, and of one bucket for everything it is the whole transfer.
    """
    exposed = sum(s.step.overlap.exposed for s in samples)
    if 2 * sum(s.step.parts.peer_wait or 0 for s in samples) > exposed:
        return "waiting"
    if 2 * sum(s.step.parts.outside_backward for s in samples) > exposed:
        return "outside backward"
    fitting = sum(s.step.fits for s in samples)
    return "serialised" if 2 * fitting > len(samples) else "link"


def _host_bound(samples: Iterable[Sample], thresholds: Thresholds) -> bool:
    shares = [s.host_starved_share for s in samples if s.host_starved_share is not None]
    return bool(shares) and median(shares) > thresholds.host_starved_share


def _overlap_backward(gradients: Sequence[Overlap | None]) -> float | None:
    known = [gradient for gradient in gradients if gradient is not None]
    total = sum(gradient.comm for gradient in known)
    return sum(gradient.hidden_backward for gradient in known) / total if total else None


def _rank_medians(samples: Sequence[Sample]) -> list[float]:
    by_rank: dict[tuple[int | None, int], list[float]] = defaultdict(list)
    for sample in samples:
        by_rank[sample.rank, sample.window].append(sample.cost_share)
    return [median(shares) for shares in by_rank.values()]


def _cost_share_if_slower(samples: Sequence[Sample], slowdown: float) -> float:
    """The cost share were every gradient transfer so many times as long: what the floor grows by is exposed as well."""
    shares = []
    for sample in samples:
        step = sample.step
        grown = step.floor(slowdown) - step.floor()
        shares.append((step.cost + grown) / (step.took + grown))
    return median(shares)


def _headroom(samples: Sequence[Sample], thresholds: Thresholds) -> float | None:
    """How many times slower the wire may get before the cost share passes its threshold; None if not within 100."""
    low, high = 1.0, 100.0
    if _cost_share_if_slower(samples, high) <= thresholds.cost_share:
        return None
    while high / low > 1.01:
        middle = (low * high) ** 0.5
        if _cost_share_if_slower(samples, middle) > thresholds.cost_share:
            high = middle
        else:
            low = middle
    return low


def _is_sharded(samples: Sequence[Sample]) -> bool:
    """Whether gradients are reduce-scattered unit by unit, as FSDP does, and not in DDP's buckets."""
    return any(op.kind == "reduce_scatter" for s in samples for op, _ in s.step.buckets)
