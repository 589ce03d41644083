"""Differences of medians: their interval, and what it takes to tell them from noise."""

from __future__ import annotations

import numpy as np
import pytest

from stepscope.stats import FEWEST, bootstrap_interval, difference_interval, enough_steps, median


def test_the_interval_of_two_constant_samples_is_their_difference() -> None:
    assert difference_interval([3.0, 3.0], [5.0, 5.0, 5.0]) == (2.0, 2.0)


def test_there_is_no_interval_with_one_value_on_a_side() -> None:
    assert difference_interval([3.0], [5.0, 6.0]) is None


def test_the_same_values_give_the_same_interval_each_time() -> None:
    a, b = [1.0, 2.0, 3.0, 4.0], [2.0, 3.0, 5.0, 9.0]
    assert difference_interval(a, b) == difference_interval(a, b)


@pytest.mark.parametrize("steps", [FEWEST, 8, 16])
def test_of_samples_that_differ_by_chance_alone_few_are_told_apart(steps: int) -> None:
    random = np.random.default_rng(7)
    told = 0
    for _ in range(200):
        interval = difference_interval(random.normal(size=steps).tolist(), random.normal(size=steps).tolist())
        assert interval is not None
        told += not interval[0] <= 0 <= interval[1]
    assert told <= 200 * 0.10


def test_four_times_the_steps_tell_half_the_difference() -> None:
    interval = (-1.0, 3.0)
    assert enough_steps(1.0, interval, 8, 8) == 32
    assert enough_steps(0.5, interval, 8, 8) == 128
    assert enough_steps(0.0, interval, 8, 8) is None


@pytest.mark.parametrize("count", [1, 2, 5, 8])
def test_the_median_of_any_number_of_values_is_numpys(count: int) -> None:
    values = np.random.default_rng(count).normal(size=count).tolist()
    assert median(values) == float(np.median(values))


@pytest.mark.parametrize("count", [2, 5, 8])
def test_an_interval_lies_among_the_medians_that_numpy_gives_of_the_same_resamples(count: int) -> None:
    data = np.random.default_rng(count).normal(size=count)
    picks = np.random.default_rng(20_26).integers(0, count, size=(10_000, count))
    medians = np.median(data[picks], axis=1)
    expected = np.quantile(medians, ((1 - 0.95) / 2, 1 - (1 - 0.95) / 2), method="nearest")
    assert bootstrap_interval(data.tolist()) == tuple(expected.tolist())
