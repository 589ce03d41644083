"""Medians with their uncertainty."""

from __future__ import annotations

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
