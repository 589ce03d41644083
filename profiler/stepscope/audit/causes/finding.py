"""What all detectors share: from a price to a finding, or to none."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from stepscope.audit.case import Case, Price, RankStep
from stepscope.audit.causes.framework import framework_of
from stepscope.audit.result import Finding
from stepscope.replay.graph import StepGraph
from stepscope.replay.joined import Key
from stepscope.stats import bootstrap_interval
from stepscope.trace.recording import CollectiveOp
from stepscope.units import ns_to_ms

MINIMUM_SHARE = 0.01
"""A cause that costs less than this share of the step is no finding: two clean steps differ by more."""
_HIGH, _MEDIUM = 0.10, 0.03


@dataclass(frozen=True, slots=True)
class Description:
    """What a detector says of its cause beside the price.

    confidence: "high", "medium" or "low", a colon, and why. fix_with: by framework, what to do instead where it is another
    than DDP that reduces the gradients.
    """

    cause: str
    confidence: str
    evidence: Sequence[str]
    fix: str
    reference: str
    ranks: Sequence[int] = field(default=())
    fix_with: Mapping[str, str] = field(default_factory=dict)


def priced(case: Case, price: Price | None, description: Description) -> list[Finding]:
    """The finding, or nothing where the price is unknown or too small to be told from noise."""
    step_ms = case.step_ms
    if price is None or step_ms is None or price.ms < MINIMUM_SHARE * step_ms:
        return []
    share = price.ms / step_ms
    known = [recording.header.rank for recording in case.recordings]
    return [
        Finding(
            cause=description.cause,
            severity="high" if share >= _HIGH else "medium" if share >= _MEDIUM else "low",
            cost_ms=price.ms,
            cost_ms_ci=bootstrap_interval(list(price.by_step.values())),
            confidence=description.confidence,
            steps=sorted(number for number, ms in price.by_step.items() if ms > 0),
            ranks=sorted(description.ranks or [rank for rank in known if rank is not None]),
            evidence=list(description.evidence),
            fix=description.fix_with.get(framework_of(case), description.fix),
            reference=description.reference,
        )
    ]


def in_step(case: Case, graph: StepGraph) -> list[RankStep]:
    """The ranks' views of a graph's step."""
    return [one for one in case.rank_steps() if one.number == graph.step]


def keys_of(one: RankStep, ops: Iterable[CollectiveOp]) -> list[Key]:
    """Some collectives of a rank as the replay names them."""
    return [(one.index, op.row) for op in ops]


def milliseconds(nanoseconds: float) -> str:
    """A time for a sentence."""
    ms = ns_to_ms(nanoseconds)
    return f"{ms:.1f} ms" if ms < 100 else f"{ms:,.0f} ms"


def mebibytes(size: float) -> str:
    """A size for a sentence: MiB as `bucket_cap_mb` counts, smaller ones in KiB."""
    return f"{size / 2**20:.1f} MiB" if size >= 2**20 else f"{size / 2**10:.1f} KiB"
