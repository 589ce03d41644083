"""Medians with their uncertainty, and Student's t."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Hashable, Iterable, Sequence
from math import ceil
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_RESAMPLES = 10_000
_DIFFERENCE_RESAMPLES = 2_000
"""Fewer, since a comparison asks for dozens of intervals."""
_SEED = 20_26


def median(values: Sequence[float]) -> float:
    """The median of at least one value."""
    ordered, half = sorted(values), len(values) // 2
    return (ordered[half] + ordered[-1 - half]) / 2


def group_means(values: Iterable[tuple[Hashable, float]]) -> list[float]:
    """The mean of the values under each key, keys in order of appearance: of each step the mean over its ranks."""
    groups: dict[Hashable, list[float]] = defaultdict(list)
    for key, value in values:
        groups[key].append(value)
    return [sum(group) / len(group) for group in groups.values()]


def bootstrap_interval(values: Sequence[float], confidence: float = 0.95) -> tuple[float, float] | None:
    """Percentile bootstrap interval of the median; None for fewer than two values.

    Resampling is seeded: the same values always give the same interval. With few values it is coarse (it can only name
    values that were seen and their midpoints) and never wider than their range; the report says how many there were.
    """
    if len(values) < 2:
        return None
    import numpy as np

    data = np.asarray(values, dtype=np.float64)
    picks = np.random.default_rng(_SEED).integers(0, len(data), size=(_RESAMPLES, len(data)))
    medians = _medians_of_rows(data[picks])
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


FEWEST = 4
"""Steps a side from which a difference can be told from noise: of two sets of three that differ by chance alone, one in
ten lies wholly above or below the other."""


def difference_interval(
    a: Sequence[float], b: Sequence[float], confidence: float = 0.95
) -> tuple[float, float] | None:
    """Percentile bootstrap interval of median(b) - median(a); None with fewer than two values on a side. Seeded."""
    if min(len(a), len(b)) < 2:
        return None
    import numpy as np

    random = np.random.default_rng(_SEED)
    differences = _resampled_medians(b, random) - _resampled_medians(a, random)
    tail = (1 - confidence) / 2
    low, high = np.quantile(differences, (tail, 1 - tail))
    return float(low), float(high)


def _resampled_medians(values: Sequence[float], random: np.random.Generator) -> NDArray[np.float64]:
    import numpy as np

    data = np.asarray(values, dtype=np.float64)
    return _medians_of_rows(data[random.integers(0, len(data), size=(_DIFFERENCE_RESAMPLES, len(data)))])


def _medians_of_rows(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    """What numpy.median gives along the second axis, without the masked arrays that it imports."""
    half = rows.shape[1] // 2
    rows.partition((rows.shape[1] - 1 - half, half), axis=1)
    medians: NDArray[np.float64] = (rows[:, half] + rows[:, -1 - half]) / 2
    return medians


def enough_steps(change: float, interval: tuple[float, float], steps_a: int, steps_b: int) -> int | None:
    """About how many steps a side would tell `change` from noise; None where no number would.

    An interval shrinks with the root of the number of steps.
    """
    if change == 0:
        return None
    half = (interval[1] - interval[0]) / 2
    steps = 2 / (1 / steps_a + 1 / steps_b)
    return max(FEWEST, ceil(steps * (half / change) ** 2), ceil(steps) + 1)
