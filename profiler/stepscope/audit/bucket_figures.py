"""A bucket's figures, one a step: the audit's table and a comparison both show their medians (METRICS section 4)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from stepscope.stats import group_means

StepKey = tuple[int, int]
"""Which recording of the ranks, from 0, and the step's number in it."""


@dataclass(frozen=True, slots=True)
class Reduced:
    """A bucket's collective on one rank in one backward pass; times in one unit, hidden: by backward compute."""

    step: StepKey
    duration: float
    exposed: float
    hidden: float


@dataclass(frozen=True, slots=True)
class Figures:
    """One value a step: times are means over its ranks and passes, the hidden share is of all their durations."""

    duration: list[float]
    exposed: list[float]
    hidden_share: list[float]


def figures(seen: Sequence[Reduced]) -> Figures:
    """Of one bucket in all counted steps; a step in which it took no time has no share."""
    duration = group_means((one.step, one.duration) for one in seen)
    hidden = group_means((one.step, one.hidden) for one in seen)
    return Figures(
        duration=duration,
        exposed=group_means((one.step, one.exposed) for one in seen),
        hidden_share=[part / whole for part, whole in zip(hidden, duration, strict=True) if whole],
    )
