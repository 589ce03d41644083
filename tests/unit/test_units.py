"""Figures are written alike everywhere."""

from __future__ import annotations

import pytest

from stepscope.units import decimals, milliseconds, percent, plural, size


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1234.56, "1,235 ms"),
        (412.34, "412.3 ms"),
        (99.994, "99.99 ms"),
        (0.1109, "0.111 ms"),
        (0.0, "0.000 ms"),
    ],
)
def test_a_time_has_about_three_significant_digits(value: float, text: str) -> None:
    assert milliseconds(value) == text


def test_a_column_takes_its_decimals_from_the_largest_value() -> None:
    assert [decimals(column) for column in ((0.2, 1000.0), (0.2, 100.0), (-5.0, 0.1), (0.9,), ())] == [
        0,
        1,
        2,
        3,
        3,
    ]


@pytest.mark.parametrize(
    ("count", "text"),
    [(26_214_400, "25.0 MiB"), (2**30, "1.0 GiB"), (4096, "4.0 KiB"), (999, "999 B"), (0, "0 B")],
)
def test_sizes_are_decimal(count: float, text: str) -> None:
    assert size(count) == text


def test_shares_and_counts() -> None:
    assert (percent(0.315), plural(1, "step"), plural(2000, "step")) == ("31.5 %", "1 step", "2,000 steps")
