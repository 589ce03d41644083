"""What a sweep makes of its runs' times: exact figures on built ones."""

from __future__ import annotations

import math

import numpy as np
import pytest

from stepscope.stats import student_t
from stepscope.sweep.compare import rank
from stepscope.sweep.plan import Slot

FAST, SLOW = (100.0, 200.0, 150.0), (110.0, 220.0, 165.0)


def times(*candidates: tuple[float, ...]) -> dict[Slot, float]:
    return {Slot(r, c): ms for c, runs in enumerate(candidates) for r, ms in enumerate(runs)}


@pytest.mark.parametrize(
    ("probability", "degrees", "value"),  # Abramowitz and Stegun, table 26.10
    [
        (0.975, 1, 12.706),
        (0.975, 2, 4.303),
        (0.975, 8, 2.306),
        (0.995, 10, 3.169),
        (0.95, 5, 2.015),
        (0.9, 7, 1.415),
    ],
)
def test_students_t_is_that_of_the_tables(probability: float, degrees: int, value: float) -> None:
    assert student_t(probability, degrees) == pytest.approx(value, abs=5e-4)


def test_a_round_that_is_slow_as_a_whole_does_not_blur_the_difference() -> None:
    ranking = rank(times(FAST, SLOW))
    assert ranking.best == 0
    difference = ranking.differences[1]
    assert difference.ratio == pytest.approx(1.1)
    assert difference.interval == pytest.approx((1.1, 1.1))
    assert difference.told_apart


def test_the_interval_is_that_of_the_paired_t_test() -> None:
    ratios = np.array([1.02, 1.08, 1.05])
    ranking = rank(times(FAST, tuple(a * b for a, b in zip(FAST, ratios, strict=True))))
    logs = np.log(ratios)
    margin = student_t(0.975, 2) * logs.std(ddof=1) / math.sqrt(3)
    assert ranking.differences[1].ratio == pytest.approx(math.exp(logs.mean()))
    assert ranking.differences[1].interval == pytest.approx(
        (math.exp(logs.mean() - margin), math.exp(logs.mean() + margin))
    )
    assert not ranking.differences[1].told_apart


def test_several_candidates_share_their_noise_and_the_confidence() -> None:
    noise = np.array([[0.01, -0.01], [-0.01, 0.01], [0.0, 0.0]])
    levels = np.log([100.0, 105.0, 120.0])
    data = {Slot(r, c): math.exp(levels[c] + noise[c, r]) for c in range(3) for r in range(2)}
    ranking = rank(data)
    degrees = (3 - 1) * (2 - 1)
    variance = float((noise**2).sum()) / degrees
    margin = student_t(1 - 0.05 / 2 / 2, degrees) * math.sqrt(2 * variance / 2)
    for candidate in (1, 2):
        ratio = math.exp(levels[candidate] - levels[0])
        assert ranking.differences[candidate].ratio == pytest.approx(ratio)
        assert ranking.differences[candidate].interval == pytest.approx(
            (ratio * math.exp(-margin), ratio * math.exp(margin))
        )


def test_rounds_are_advised_that_would_tell_what_was_seen() -> None:
    ratios = (1.02, 1.08, 1.05)
    difference = rank(times(FAST, tuple(a * b for a, b in zip(FAST, ratios, strict=True)))).differences[1]
    deviation = np.log(ratios).std(ddof=1)

    def enough(rounds: int) -> bool:
        needed = student_t(0.975, rounds - 1) + student_t(0.8, rounds - 1)
        return bool(needed * deviation / math.sqrt(rounds) <= math.log(difference.ratio))

    assert difference.rounds is not None
    assert enough(difference.rounds)
    assert not enough(difference.rounds - 1)


def test_a_difference_of_nothing_asks_for_no_rounds() -> None:
    difference = rank(times((100.0, 104.0, 96.0), (104.0, 96.0, 100.001))).differences[1]
    assert difference.ratio == pytest.approx(1.0, abs=1e-4)
    assert difference.rounds is None


def test_one_round_names_the_shortest_and_claims_nothing() -> None:
    ranking = rank(times((120.0,), (100.0,)))
    assert ranking.best == 1
    assert ranking.differences[0].ratio == pytest.approx(1.2)
    assert ranking.differences[0].interval is None
    assert not ranking.differences[0].told_apart
    assert ranking.intervals == {}


def test_a_candidate_that_missed_the_slow_rounds_is_not_the_better_for_it() -> None:
    data = times((100.0, 200.0, 200.0), (110.0,))
    ranking = rank({**data, Slot(1, 2): 210.0, Slot(0, 2): 105.0})
    assert ranking.best == 0
    assert ranking.differences[1].ratio == pytest.approx(1.1, abs=0.02)


def test_a_candidates_own_interval_is_by_the_pooled_spread_of_runs() -> None:
    ranking = rank(times(FAST, SLOW))
    logs = np.log(FAST)
    deviation = logs.std(ddof=1)
    assert ranking.times[0] == pytest.approx(math.exp(logs.mean()))
    margin = student_t(0.975, 4) * deviation / math.sqrt(3)
    assert ranking.intervals[0] == pytest.approx(
        (math.exp(logs.mean() - margin), math.exp(logs.mean() + margin))
    )
