"""Which candidate is the fastest, and which can't be told from it: paired within rounds.

A run's time is taken as candidate x round x noise, so the logarithms add up: a randomised complete block design, solved by
least squares, which serves rounds that are not complete too. What slows a whole round down falls out of the comparison.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stepscope.stats import student_t
from stepscope.sweep.plan import Slot

CONFIDENCE = 0.95
POWER = 0.80
"""The chance with which the rounds that are advised would tell two candidates apart, if they differ by what was seen."""

MOST_ROUNDS = 100
"""More are not advised: so small a difference is not worth the time."""


@dataclass(frozen=True)
class Difference:
    """How a candidate's time compares with the best one's.

    ratio: its time over the best one's. interval: of the ratio, 95 % for all comparisons together; None where no rounds were
    repeated. rounds: in all, that would tell the two apart; None where they are, or where `MOST_ROUNDS` would not do.
    """

    ratio: float
    interval: tuple[float, float] | None = None
    rounds: int | None = None

    @property
    def told_apart(self) -> bool:
        """Whether the candidate is slower by more than noise."""
        return self.interval is not None and self.interval[0] > 1


@dataclass(frozen=True)
class Ranking:
    """The candidate with the least time, the others beside it, and each one's own time with its interval."""

    best: int
    differences: dict[int, Difference]
    times: dict[int, float]
    """Geometric means over rounds, ms."""
    intervals: dict[int, tuple[float, float]]
    """95 % intervals of them, by the spread within candidates, pooled; empty where no round was repeated."""


def rank(times: Mapping[Slot, float]) -> Ranking:
    """Compare candidates by their runs' times, one at least."""
    candidates = sorted({slot.candidate for slot in times})
    rounds = sorted({slot.round for slot in times})
    logs = np.log(np.array(list(times.values())))
    design = _design(list(times), candidates, rounds)
    effects, *_ = np.linalg.lstsq(design, logs, rcond=None)
    degrees = len(logs) - int(np.linalg.matrix_rank(design))
    best = int(np.argmin(effects[: len(candidates)]))
    residuals = logs - design @ effects
    noise = _Noise(
        variance=float(residuals @ residuals) / degrees if degrees else 0.0,
        covariance=np.asarray(np.linalg.pinv(design.T @ design), dtype=np.float64),
        degrees=degrees,
        candidates=len(candidates),
        rounds=len(rounds),
    )
    differences = {
        candidate: noise.difference(index, best, float(effects[index] - effects[best]))
        for index, candidate in enumerate(candidates)
        if index != best
    }
    own = {
        candidate: [float(logs[i]) for i, slot in enumerate(times) if slot.candidate == candidate]
        for candidate in candidates
    }
    means = {candidate: math.exp(sum(values) / len(values)) for candidate, values in own.items()}
    return Ranking(candidates[best], differences, means, _intervals(own))


def _design(slots: list[Slot], candidates: list[int], rounds: list[int]) -> NDArray[np.float64]:
    """A column for each candidate and one for each round after the first."""
    design = np.zeros((len(slots), len(candidates) + len(rounds) - 1))
    for row, slot in enumerate(slots):
        design[row, candidates.index(slot.candidate)] = 1
        if slot.round != rounds[0]:
            design[row, len(candidates) + rounds.index(slot.round) - 1] = 1
    return design


@dataclass(frozen=True)
class _Noise:
    """What candidate and round leave unexplained: its variance, and what it makes of a difference."""

    variance: float
    covariance: NDArray[np.float64]
    """Of the effects, in units of the variance."""
    degrees: int
    candidates: int
    rounds: int

    def difference(self, index: int, best: int, log_ratio: float) -> Difference:
        ratio = math.exp(log_ratio)
        if self.degrees == 0:
            return Difference(ratio)
        spread = (
            self.covariance[index, index] + self.covariance[best, best] - 2 * self.covariance[index, best]
        )
        margin = self._quantile(self.degrees) * math.sqrt(self.variance * max(float(spread), 0.0))
        interval = (math.exp(log_ratio - margin), math.exp(log_ratio + margin))
        return Difference(ratio, interval, None if interval[0] > 1 else self._rounds_needed(log_ratio))

    def _quantile(self, degrees: int) -> float:
        """Student's t for all comparisons with the best one together (Bonferroni)."""
        return student_t(1 - (1 - CONFIDENCE) / 2 / (self.candidates - 1), degrees)

    def _rounds_needed(self, log_ratio: float) -> int | None:
        """Complete rounds of all candidates, in all, that would tell such a difference from noise like this."""
        for rounds in range(self.rounds + 1, MOST_ROUNDS + 1):
            degrees = (self.candidates - 1) * (rounds - 1)
            needed = self._quantile(degrees) + student_t(POWER, degrees)
            if needed * math.sqrt(2 * self.variance / rounds) <= log_ratio:
                return rounds
        return None


def _intervals(own: Mapping[int, list[float]]) -> dict[int, tuple[float, float]]:
    degrees = sum(len(values) - 1 for values in own.values())
    if degrees == 0:
        return {}
    squares = sum(float(np.var(values)) * len(values) for values in own.values())
    deviation = math.sqrt(squares / degrees)
    quantile = student_t(1 - (1 - CONFIDENCE) / 2, degrees)
    found = {}
    for candidate, values in own.items():
        mean, margin = sum(values) / len(values), quantile * deviation / math.sqrt(len(values))
        found[candidate] = (math.exp(mean - margin), math.exp(mean + margin))
    return found
