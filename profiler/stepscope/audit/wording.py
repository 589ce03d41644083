"""The verdict in words: what it means, how it was come by, and what to do next."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from stepscope.audit import again
from stepscope.audit.beside import Apart
from stepscope.audit.result import Finding, Thresholds
from stepscope.ranks.doubts import Doubt

COMM_BOUND = "comm-bound"
COMM_SENSITIVE = "comm-sensitive"
COMPUTE_BOUND = "compute-bound"
INCONCLUSIVE = "inconclusive"
NO_COMMUNICATION = "no communication"

RECORDED, INFERRED, PARTLY_RECORDED = "recorded", "inferred", "partly recorded"

OF_THE_REST = "of the step less its cost"
"""What communication is compared with its threshold as a share of."""

HIDDEN_NOW = "hidden now"
NOT_WAITED_FOR = "exposed, but not what the step waits for"
BELOW_THRESHOLD = "exposed, but below the threshold"

_FEW_STEPS = 5
"""With fewer steps a bootstrap interval is hardly more than their range."""
_FEWEST_STEPS = 3
"""Of fewer, how much steps differ is hardly known."""


@dataclass(frozen=True, slots=True)
class Facts:
    """What the words depend on."""

    label: str
    reason: str
    thresholds: Thresholds
    headroom: float | None
    replayed: bool
    """Every step could be replayed."""
    ranks: int
    steps: int
    host_bound: bool
    sharded: bool
    """Gradients are reduce-scattered unit by unit, as FSDP does, and not in DDP's buckets."""
    waits: str | None = None
    contention: Apart | None = None
    doubts: Sequence[Doubt] = ()
    run: Mapping[str, Any] | None = None
    """run.json, where there is one."""


_MEANING = {
    COMM_BOUND: "waiting for communication takes more than {limit:.0f} % of the step",
    COMM_SENSITIVE: "most communication is hidden now, but there is enough of it that whatever breaks the overlap will show",
    COMPUTE_BOUND: "communication is small beside compute (up to {share:.0f} % of the step less its cost)",
}
_REASONS = {
    BELOW_THRESHOLD: "Most of it is exposed. The step waits for it for less than {limit:.0f} % of its time, but whatever makes "
    "it longer will show.",
    NOT_WAITED_FOR: "Much of it is exposed, yet without any transfer the step would be shorter by less than half of that: it "
    "waits for the host or for a rank that is late.",
    "waiting": "Most of it is waiting for a rank that arrives late, not transfer: look for the straggler.",
    "serialised": "The gradients would fit into backward, but their transfers start too late or run on after it.",
    "link": "The gradients do not fit into backward: no schedule of these buckets hides them on this link.",
    "outside backward": "Most of it is collectives that forward or the optimizer launched, with no backward beside them.",
}
_REPLAYED = (
    "The cost of communication is what the step, replayed with every transfer at zero time, is shorter by."
)
_WITHOUT_WAITING = "Waiting for a rank that is late is none of it."
_UPPER_BOUND = (
    "A step could not be replayed (too little of its host was recorded), so the cost of communication is exposed time less "
    "the time the host starved the device: an upper bound."
)
_WAITS = {
    RECORDED: "Who waits for whom is what the profiler recorded.",
    INFERRED: "Who waits for whom on the device was not recorded and is inferred from times.",
    PARTLY_RECORDED: "Who waits for whom on the device was recorded on some ranks and is inferred from times on the others.",
}
_CONTENTION = (
    "Apart from that, compute beside collectives took {ms:.1f} ms a step longer than the same takes alone (contention; "
    "{compared:.0%} of it could be compared)."
)
_ALONE = "One rank's recording: time spent waiting for the other ranks can't be told from transfer."
_HOST_BOUND = (
    "The device waits for the host to launch work most of the time, so the exposed share is not the network's fault: a faster "
    "network would bring little while the host is this slow."
)


def explanation(facts: Facts) -> str:
    """A few sentences behind the label: meaning, reason, how the cost was found, and what limits the answer."""
    sentences, limit = [], 100 * facts.thresholds.cost_share
    share = 100 * facts.thresholds.comm_share
    exposed = facts.reason in (NOT_WAITED_FOR, BELOW_THRESHOLD)
    if facts.label in _MEANING and not exposed:
        sentences.append(f"{facts.label}: {_MEANING[facts.label].format(limit=limit, share=share)}.")
    if facts.label == COMM_BOUND or exposed:
        sentences.append(_REASONS[facts.reason].format(limit=limit))
    if facts.headroom is not None and facts.reason != NOT_WAITED_FOR:
        sentences.append(
            f"The wire may get {facts.headroom:.1f} times slower before the label changes to {COMM_BOUND}."
        )
    sentences.append(_REPLAYED if facts.replayed else _UPPER_BOUND)
    if facts.replayed and facts.waits is not None:
        sentences.append(_WAITS[facts.waits])
    if facts.contention is not None and facts.contention.ms > 0:
        told = _CONTENTION.format(ms=facts.contention.ms, compared=facts.contention.compared)
        sentences.append(told)
    if facts.ranks == 1:
        sentences.append(_ALONE)
    elif facts.replayed:
        sentences.append(_WITHOUT_WAITING)
    if facts.steps == 1:
        sentences.append("One valid step only: no interval can be given.")
    elif facts.steps < _FEW_STEPS:
        sentences.append(f"The interval is that of {facts.steps} steps: hardly more than their range.")
    if facts.host_bound:
        sentences.append(_HOST_BOUND)
    return " ".join(sentences)


def undecided_cost(other: str, thresholds: Thresholds) -> str:
    """The reason where the cost, whose interval stands beside it in every report, may be above its threshold or not."""
    return f"between {COMM_BOUND} and {other}: the interval of its cost holds the threshold of {100 * thresholds.cost_share:g} %"


def undecided_share(value: float, interval: tuple[float, float] | None, thresholds: Thresholds) -> str:
    """The reason where communication may take more than its threshold or not, with the figure that is compared."""
    limit = thresholds.comm_share
    low, high = interval or (value, value)
    places = next(
        (n for n in (1, 2) if round(100 * low, n) != round(100 * limit, n) != round(100 * high, n)), 3
    )
    return (
        f"between {COMM_SENSITIVE} and {COMPUTE_BOUND}: communication is {100 * value:.{places}f} % {OF_THE_REST}, and the "
        f"interval of {100 * low:.{places}f} to {100 * high:.{places}f} % holds the threshold of {100 * limit:g} %"
    )


def confidence(facts: Facts) -> str:
    """high, medium or low, and after a colon why not high."""
    grave = [doubt.message for doubt in facts.doubts if doubt.grave]
    if grave:
        return f"low: {grave[0]}"
    reasons = [doubt.message for doubt in facts.doubts]
    if not facts.replayed:
        reasons.append("a step could not be replayed: the cost of communication is an upper bound")
    if facts.steps < _FEWEST_STEPS:
        reasons.append(f"{'one valid step' if facts.steps == 1 else 'two valid steps'} only")
    if facts.label == INCONCLUSIVE:
        reasons.append("the interval over the steps holds a threshold")
    return f"medium: {reasons[0]}" if reasons else "high"


def next_step(facts: Facts) -> str:
    """What to do where no cause was found."""
    if facts.host_bound:
        return "reduce launch overhead first (larger batch, fused or compiled kernels, CUDA graphs), then record again"
    if facts.label == INCONCLUSIVE:
        return f"record more steps: {again.record_again(facts.run, max(10, 3 * facts.steps))}"
    if facts.label != COMM_BOUND:
        return "keep audit.json, and audit again after a change of model, ranks or network"
    if facts.reason == "serialised" and facts.sharded:
        return "look at FSDP's units and prefetch (set_modules_to_backward_prefetch); on CPU it waits for every collective"
    return {
        "serialised": "try a smaller bucket_cap_mb, so that the first bucket leaves while backward still runs",
        "waiting": "find out what the rank that arrives last does meanwhile: input, longer compute, a synchronisation",
        "link": "send less: gradient accumulation with no_sync, bfloat16 gradients, or a larger batch per rank",
    }.get(
        facts.reason,
        "look at the collectives listed below: buffers, ZeRO parameters or metrics outside backward",
    )


def first_fix(findings: Sequence[Finding]) -> str | None:
    """What to do about the costliest cause; None where none is worth it."""
    worth = [finding for finding in findings if finding.severity in ("high", "medium")]
    return f"{worth[0].cause}: {worth[0].fix}" if worth else None


def try_cap(cap_mb: float, run: Mapping[str, Any] | None = None) -> str:
    """What to do where a bucket cap is predicted to help and no cause is worth more."""
    return (
        f"measure the predicted bucket size beside the present one: {again.sweep(run, f'script,{cap_mb:g}')}"
    )


def nothing_to_hide(world_size: int | None) -> tuple[str, str]:
    """Explanation and next step where no collective ran."""
    if world_size is not None and world_size > 1:
        return (
            f"Overlap does not apply: {world_size} ranks ran and none of them launched a collective in the recorded steps.",
            "check that the model is wrapped in DistributedDataParallel or fully_shard, and that steps reduce gradients",
        )
    return (
        "Overlap does not apply: there was nothing to hide. A run with one rank moves nothing.",
        "record a run with two ranks or more: stepscope run --nproc-per-node 2 SCRIPT",
    )
