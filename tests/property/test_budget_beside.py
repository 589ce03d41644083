"""What must hold of a model beside a measurement, whatever was measured."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from budget_setting import worked
from measured_runs import calibration, fit
from stepscope.budget.beside import exposed_in_order
from stepscope.budget.buckets import exposed
from stepscope.budget.calibrated import given_model, measured_model
from stepscope.budget.links import Link
from stepscope.budget.quantities import ZERO_TIME, Rate, Size, Time
from stepscope.budget.recorded import Operation, beside_transfers
from stepscope.budget.ring import ring_all_gather, ring_all_reduce, ring_reduce_scatter
from stepscope.budget.traffic import backward_cost

ranks = st.integers(2, 512)
sizes = st.floats(1, 1e10).map(Size.from_bytes)
links = st.builds(
    lambda alpha, rate: Link(Time.from_us(alpha), Rate.from_gb_per_s(rate)),
    st.floats(1, 1e3),
    st.floats(0.01, 100),
)
spans = st.lists(st.tuples(st.integers(0, 200), st.integers(1, 60)), min_size=1, max_size=12)


@given(ranks=ranks, size=sizes, link=links)
def test_without_a_floor_the_model_is_the_ring(ranks: int, size: Size, link: Link) -> None:
    terms = given_model(link).base
    for kind, formula in (
        ("all_reduce", ring_all_reduce),
        ("reduce_scatter", ring_reduce_scatter),
        ("all_gather", ring_all_gather),
    ):
        assert terms.time(kind, ranks, size).base == pytest.approx(formula(ranks, size, link).total.base)


@given(ranks=ranks, size=sizes, factor=st.floats(1, 100))
def test_a_measured_time_grows_with_size_from_its_floor_on(ranks: int, size: Size, factor: float) -> None:
    terms = measured_model(calibration(ranks=ranks), ranks).base
    short, long = (terms.time("all_reduce", ranks, one) for one in (size, size * factor))
    assert Time.from_us(400.0) <= short <= long * (1 + 1e-9)


@given(count=st.integers(1, 400), floor=st.floats(0, 1e5))
def test_a_floor_never_makes_buckets_cheaper_and_bounds_each_of_them(count: int, floor: float) -> None:
    setting = worked()
    link = Link(setting.link.latency, setting.link.rate, Time.from_us(floor))
    plain, floored = (
        backward_cost(0, setting.ranks, setting.message, one, count).total for one in (setting.link, link)
    )
    assert floored.base == pytest.approx(max(plain, link.floor * count).base)


@given(count=st.integers(1, 300), alpha=st.floats(1, 1e4))
def test_equal_buckets_stick_out_as_the_budget_says(count: int, alpha: float) -> None:
    setting = worked(link=Link(Time.from_us(alpha), Rate.from_gb_per_s(25)))
    total = backward_cost(0, setting.ranks, setting.message, setting.link, count).total
    buckets = [setting.message / count] * count
    found = exposed_in_order(buckets, [total / count] * count, setting.window)
    assert found.base == pytest.approx(exposed(setting, setting.ranks, count).base)


@given(spans=spans)
def test_the_share_beside_other_transfers_is_that_of_brute_force(spans: list[tuple[int, int]]) -> None:
    operations = [
        Operation(
            source="rank0",
            step=1,
            kind="all_reduce",
            gradient=True,
            size=None,
            ranks=2,
            start=Time(float(start)),
            duration=Time(float(length)),
            wire=None,
            beside_backward=ZERO_TIME,
        )
        for start, length in spans
    ]
    cells = [set(range(start, start + length)) for start, length in spans]
    expected = [
        len(own & set().union(*(cells[:place] + cells[place + 1 :]))) / len(own)
        for place, own in enumerate(cells)
    ]
    assert beside_transfers(operations) == pytest.approx(expected)


@given(alpha=st.floats(0.1, 1e4), rate=st.floats(0.01, 1e3))
def test_what_is_given_replaces_what_was_measured_and_nothing_else(alpha: float, rate: float) -> None:
    made = calibration(own=fit(alpha_us=alpha, bandwidth_gb_per_s=rate, floor_us=None))
    given_rate = measured_model(made, 2, rate=Rate.from_gb_per_s(7)).base
    assert given_rate.alpha.us == pytest.approx(alpha)
    assert given_rate.rate.gb_per_s == pytest.approx(7.0)
    given_latency = measured_model(made, 2, latency=Time.from_us(3)).base
    assert given_latency.alpha.us == pytest.approx(3.0)
    assert given_latency.rate.gb_per_s == pytest.approx(rate)


@given(
    buckets=st.lists(st.tuples(st.floats(1e3, 1e9), st.floats(1e-5, 1.0)), min_size=1, max_size=20),
    window=st.floats(1e-3, 10),
)
def test_what_sticks_out_is_at_least_the_last_bucket_and_at_most_all(
    buckets: list[tuple[float, float]], window: float
) -> None:
    times = [Time(time) for _, time in buckets]
    found = exposed_in_order([Size(size) for size, _ in buckets], times, Time(window)).base
    assert (
        times[-1].base * (1 - 1e-9) - 1e-12 <= found <= sum(time.base for time in times) * (1 + 1e-9) + 1e-12
    )
