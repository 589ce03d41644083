"""Medians with their uncertainty, and Student's t."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

_RESAMPLES = 10_000
_SEED = 20_26


def median(values: Sequence[float]) -> float:
    """The median of at least one value."""
    return float(np.median(np.asarray(values, dtype=np.float64)))


def bootstrap_interval(values: Sequence[float], confidence: float = 0.95) -> tuple[float, float] | None:
    """Percentile bootstrap interval of the median; None for fewer than two values.

    Resampling is seeded: the same values always give the same interval. With few values it is coarse (it can only name
    values that were seen and their midpoints) and never wider than their range; the report says how many there were.
    """
    if len(values) < 2:
        return None
    data = np.asarray(values, dtype=np.float64)
    picks = np.random.default_rng(_SEED).integers(0, len(data), size=(_RESAMPLES, len(data)))
    medians = np.median(data[picks], axis=1)
    tail = (1 - confidence) / 2
    low, high = np.quantile(medians, (tail, 1 - tail), method="nearest")
    return float(low), float(high)


def student_t(probability: float, degrees: int) -> float:
    """The value that a Student's t of so many degrees of freedom stays below with that probability, from 0.5 to below 1.

    Inverts the finite series for whole degrees of freedom: Abramowitz and Stegun, "Handbook of Mathematical Functions",
    26.7.3 and 26.7.4. Their angle is bounded where t is not, so it is what gets halved.
    """
    within = 2 * probability - 1
    low, high = 0.0, math.pi / 2
    for _ in range(60):
        angle = (low + high) / 2
        low, high = (angle, high) if _t_within(angle, degrees) < within else (low, angle)
    return math.sqrt(degrees) * math.tan(low)


def _t_within(angle: float, degrees: int) -> float:
    """P(|T| < t) with t = sqrt(degrees) tan(angle)."""
    odd = degrees % 2
    term = math.cos(angle) if odd else 1.0
    total = 0.0
    for power in range(1 if odd else 0, degrees - 1, 2):
        total += term
        term *= math.cos(angle) ** 2 * (power + 1) / (power + 2)
    if odd:
        return 2 / math.pi * (angle + math.sin(angle) * total)
    return math.sin(angle) * total
