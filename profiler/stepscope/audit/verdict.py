"""The label and its reasons, from the measured steps (METRICS section 7)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from stepscope.audit.overlap import Overlap
from stepscope.audit.result import Thresholds, Verdict
from stepscope.audit.step import MeasuredStep
from stepscope.stats import bootstrap_interval, median

COMM_BOUND = "comm-bound"
COMM_SENSITIVE = "comm-sensitive"
COMPUTE_BOUND = "compute-bound"
INCONCLUSIVE = "inconclusive"
NO_COMMUNICATION = "no communication"

NOT_WAITED_FOR = "exposed, but not what the step waits for"

_REPLAYED = (
    "The cost of communication is what the step, replayed with every transfer at zero time, is shorter by."
)
_WITHOUT_WAITING = "Waiting for a rank that is late is none of it."
_UPPER_BOUND = (
    "A step could not be replayed (too little of its host was recorded), so the cost of communication is exposed time less "
    "the time the host starved the device: an upper bound."
)
_ALONE = "One rank's recording: time spent waiting for the other ranks can't be told from transfer."


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
        return self.step.cost / self.step.wall

    @property
    def comm_share(self) -> float:
        """Communication over the step without its cost."""
        return self.step.overlap.comm / max(1, self.step.wall - self.step.cost)


@dataclass(frozen=True, slots=True)
class Share:
    """A share of the step: median over steps of the mean over ranks, and its interval if there are two steps or more."""

    value: float
    interval: tuple[float, float] | None

    @classmethod
    def of(cls, samples: Sequence[Sample], figure: str) -> Share:
        """The share called `figure` ("cost_share" or "comm_share") over all samples."""
        by_step: dict[tuple[int, int], list[float]] = defaultdict(list)
        for sample in samples:
            by_step[sample.window, sample.step.window.number].append(getattr(sample, figure))
        values = [sum(shares) / len(shares) for shares in by_step.values()]
        return cls(median(values), bootstrap_interval(values))

    def above(self, threshold: float) -> bool | None:
        """Whether it lies above a threshold; None if the interval holds both answers."""
        if self.interval is not None and self.interval[0] <= threshold < self.interval[1]:
            return None
        return self.value > threshold


def judge(samples: Sequence[Sample], gates: Sequence[str], any_comm: bool, thresholds: Thresholds) -> Verdict:
    """The verdict over all valid steps.

    gates: the reasons, if any, why these recordings can't carry a verdict. any_comm: whether any collective was seen.
    """
    if not any_comm and not gates:
        return _no_communication(samples, thresholds)
    if not samples:
        return _inconclusive(gates or ("no valid step was recorded",), thresholds)
    cost, comm = Share.of(samples, "cost_share"), Share.of(samples, "comm_share")
    label, reason = (INCONCLUSIVE, "; ".join(gates)) if gates else _label(samples, cost, comm, thresholds)
    headroom = _headroom(samples, thresholds) if label == COMM_SENSITIVE else None
    by_rank = _rank_medians(samples)
    host_bound = _host_bound(samples, thresholds)
    return Verdict(
        label=label,
        reason=reason,
        host_bound=host_bound,
        cost_share=cost.value,
        cost_share_ci=cost.interval,
        comm_share=comm.value,
        comm_share_ci=comm.interval,
        rank_spread=(min(by_rank), max(by_rank)) if len(by_rank) > 1 else None,
        overlap_backward=_overlap_backward([s.step.gradient for s in samples]),
        overlap_backward_wire=_overlap_backward([s.step.gradient_wire for s in samples]),
        headroom=headroom,
        thresholds=thresholds,
        explanation=_explanation(samples, label, reason, headroom, thresholds),
        next_step=_next_step(label, reason, host_bound, _is_sharded(samples)),
    )


def _no_communication(samples: Sequence[Sample], thresholds: Thresholds) -> Verdict:
    return Verdict(
        label=NO_COMMUNICATION,
        reason="no collective ran in the recorded steps",
        host_bound=_host_bound(samples, thresholds),
        thresholds=thresholds,
        explanation="Overlap does not apply: there was nothing to hide. A run with one rank launches no collective.",
        next_step="record a run with two ranks or more: stepscope run --nproc-per-node 2 SCRIPT",
    )


def _inconclusive(gates: Sequence[str], thresholds: Thresholds) -> Verdict:
    return Verdict(
        label=INCONCLUSIVE,
        reason="; ".join(gates),
        host_bound=False,
        thresholds=thresholds,
        explanation="The recording can't carry a verdict; figures that could be measured are given all the same.",
        next_step="record again: stepscope run --nproc-per-node N SCRIPT",
    )


def _label(samples: Sequence[Sample], cost: Share, comm: Share, thresholds: Thresholds) -> tuple[str, str]:
    bound, heavy = cost.above(thresholds.cost_share), comm.above(thresholds.comm_share)
    if bound is None:
        other = COMPUTE_BOUND if heavy is False else COMM_SENSITIVE
        return INCONCLUSIVE, f"between {COMM_BOUND} and {other}: the interval of the cost holds the threshold"
    if bound:
        return COMM_BOUND, _main_reason(samples)
    if heavy is None:
        return (
            INCONCLUSIVE,
            f"between {COMM_SENSITIVE} and {COMPUTE_BOUND}: the interval of its share holds the threshold",
        )
    if not heavy:
        return COMPUTE_BOUND, "little communication"
    return COMM_SENSITIVE, NOT_WAITED_FOR if _exposed_share(samples) > thresholds.cost_share else "hidden now"


def _exposed_share(samples: Sequence[Sample]) -> float:
    return median([s.step.overlap.exposed / s.step.wall for s in samples])


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
        shares.append((step.cost + grown) / (step.wall + grown))
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


_MEANING = {
    COMM_BOUND: "waiting for communication takes more than {limit:.0f} % of the step",
    COMM_SENSITIVE: "communication is hidden now, but there is enough of it that whatever breaks the overlap will show",
    COMPUTE_BOUND: "communication is small beside compute and hidden",
}
_REASONS = {
    NOT_WAITED_FOR: "Much of it is exposed, yet without any transfer the step would hardly be shorter: it waits for the host "
    "or for a rank that is late.",
    "waiting": "Most of it is waiting for a rank that arrives late, not transfer: look for the straggler.",
    "serialised": "The gradients would fit into backward, but their transfers start too late or run on after it.",
    "link": "The gradients do not fit into backward: no schedule of these buckets hides them on this link.",
    "outside backward": "Most of it is collectives that forward or the optimizer launched, with no backward beside them.",
}


def _explanation(
    samples: Sequence[Sample], label: str, reason: str, headroom: float | None, thresholds: Thresholds
) -> str:
    sentences = []
    if label in _MEANING and reason != NOT_WAITED_FOR:
        sentences.append(f"{label}: {_MEANING[label].format(limit=100 * thresholds.cost_share)}.")
    if label == COMM_BOUND or reason == NOT_WAITED_FOR:
        sentences.append(_REASONS[reason])
    if headroom is not None:
        sentences.append(
            f"The wire may get {headroom:.1f} times slower before the label changes to {COMM_BOUND}."
        )
    replayed = all(s.step.replayed_cost is not None for s in samples)
    sentences.append(_REPLAYED if replayed else _UPPER_BOUND)
    if len({s.rank for s in samples}) == 1:
        sentences.append(_ALONE)
    elif replayed:
        sentences.append(_WITHOUT_WAITING)
    if len({(s.window, s.step.window.number) for s in samples}) == 1:
        sentences.append("One valid step only: no interval can be given.")
    if _host_bound(samples, thresholds):
        sentences.append(
            "The device waits for the host to launch work most of the time, so the exposed share is not the network's "
            "fault: a faster network would bring little while the host is this slow."
        )
    return " ".join(sentences)


def _is_sharded(samples: Sequence[Sample]) -> bool:
    """Whether gradients are reduce-scattered unit by unit, as FSDP does, and not in DDP's buckets."""
    return any(op.kind == "reduce_scatter" for s in samples for op, _ in s.step.buckets)


def _next_step(label: str, reason: str, host_bound: bool, sharded: bool) -> str:
    if host_bound:
        return "reduce launch overhead first (larger batch, fused or compiled kernels, CUDA graphs), then record again"
    if label == INCONCLUSIVE:
        return "record more steps: stepscope run --steps 10 SCRIPT"
    if label != COMM_BOUND:
        return "keep this audit as a baseline, and audit again after a change of model, ranks or network"
    if reason == "serialised" and sharded:
        return "look at FSDP's units and prefetch (set_modules_to_backward_prefetch); on CPU it waits for every collective"
    return {
        "serialised": "try a smaller bucket_cap_mb, so that the first bucket leaves while backward still runs",
        "waiting": "find out what the rank that arrives last does meanwhile: input, longer compute, a synchronisation",
        "link": "send less: gradient accumulation with no_sync, bfloat16 gradients, or a larger batch per rank",
    }.get(
        reason, "look at the collectives listed below: buffers, ZeRO parameters or metrics outside backward"
    )
