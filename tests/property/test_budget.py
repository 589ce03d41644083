"""What must hold of every cost, whatever the fabric."""

from __future__ import annotations

import itertools
import math

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from budget_setting import worked
from stepscope.budget import algorithms, choice, collectives
from stepscope.budget.buckets import bucket_row, exposed, recommend
from stepscope.budget.links import Cost, Fabric, Link, Node
from stepscope.budget.memory import stage_memory
from stepscope.budget.quantities import Rate, Size, Time
from stepscope.budget.ring import crossover, ring_all_gather, ring_all_reduce, ring_reduce_scatter
from stepscope.budget.setting import Origin, Setting
from stepscope.budget.traffic import backward_cost

TOLERANCE = 1e-9

ranks = st.integers(2, 4096)
sizes = st.floats(1, 1e12).map(Size.from_bytes)
latencies = st.floats(1e-7, 1e-3)
rates = st.floats(1e6, 1e12)
links = st.builds(lambda latency, rate: Link(Time(latency), Rate(rate)), latencies, rates)
factors = st.floats(1, 1e3)

MONOTONIC = [
    ring_all_reduce,
    algorithms.tree_all_reduce,
    algorithms.two_tree_stream,
    algorithms.one_shot_all_reduce,
    algorithms.two_shot_all_reduce,
    collectives.bruck_all_gather,
    collectives.binomial_broadcast,
    collectives.scatter_all_gather_broadcast,
    collectives.pairwise_all_to_all,
    collectives.bruck_all_to_all,
]
ALL = [*MONOTONIC, algorithms.halving_doubling_all_reduce, collectives.halving_reduce_scatter]


def not_above(low: Cost | Time, high: Cost | Time) -> bool:
    """No dearer, but for rounding."""
    times = [cost.total if isinstance(cost, Cost) else cost for cost in (low, high)]
    return times[0].base <= times[1].base * (1 + TOLERANCE)


@pytest.mark.parametrize("formula", ALL)
@given(ranks=ranks, size=sizes, link=links, factor=factors)
def test_more_data_never_costs_less(
    formula: choice.Formula, ranks: int, size: Size, link: Link, factor: float
) -> None:
    assert not_above(formula(ranks, size, link), formula(ranks, size * factor, link))


@pytest.mark.parametrize("formula", ALL)
@given(ranks=ranks, size=sizes, link=links, factor=factors)
def test_a_slower_link_never_costs_less(
    formula: choice.Formula, ranks: int, size: Size, link: Link, factor: float
) -> None:
    late = Link(link.latency * factor, link.rate)
    narrow = Link(link.latency, link.rate * (1 / factor))
    assert not_above(formula(ranks, size, link), formula(ranks, size, late))
    assert not_above(formula(ranks, size, link), formula(ranks, size, narrow))


@pytest.mark.parametrize("formula", MONOTONIC)
@given(ranks=ranks, more=st.integers(1, 1000), size=sizes, link=links)
def test_more_ranks_never_cost_less(
    formula: choice.Formula, ranks: int, more: int, size: Size, link: Link
) -> None:
    assert not_above(formula(ranks, size, link), formula(ranks + more, size, link))


@given(power=st.integers(1, 11), size=sizes, link=links)
def test_halving_doubling_grows_over_powers_of_two_and_is_dearer_in_between(
    power: int, size: Size, link: Link
) -> None:
    here, between, beyond = (
        algorithms.halving_doubling_all_reduce(count, size, link)
        for count in (2**power, 2 ** (power + 1) - 1, 2 ** (power + 1))
    )
    assert not_above(here, beyond)
    assert not_above(beyond, between)


@given(ranks=ranks, link=links)
def test_at_the_crossover_the_two_terms_of_the_ring_are_equal(ranks: int, link: Link) -> None:
    cost = ring_all_reduce(ranks, crossover(ranks, link), link)
    assert cost.latency.base == pytest.approx(cost.bandwidth.base)


@given(ranks=ranks, size=sizes, link=links)
def test_reduce_scatter_and_all_gather_together_are_an_all_reduce(ranks: int, size: Size, link: Link) -> None:
    halves = ring_reduce_scatter(ranks, size, link) + ring_all_gather(ranks, size, link)
    assert halves == ring_all_reduce(ranks, size, link)


@given(inside=st.integers(1, 64), nodes=st.integers(1, 64), size=sizes, link=links)
def test_a_hierarchy_over_equal_links_moves_the_bytes_of_the_flat_ring_with_fewer_start_ups(
    inside: int, nodes: int, size: Size, link: Link
) -> None:
    flat = ring_all_reduce(inside * nodes, size, link)
    cost = algorithms.hierarchical_all_reduce(inside * nodes, size, link, Node(inside, link))
    assert cost.bandwidth.base == pytest.approx(flat.bandwidth.base, rel=1e-9, abs=1e-18)
    assert cost.latency.base == pytest.approx(
        link.latency.base * 2 * (inside + nodes - 2), rel=1e-9, abs=1e-18
    )
    if min(inside, nodes) == 1:
        assert cost.latency.base == pytest.approx(flat.latency.base, rel=1e-9, abs=1e-18)
    else:
        assert cost.latency < flat.latency


@given(ranks=ranks, size=sizes, link=links, node=st.none() | st.integers(1, 64))
def test_the_cheapest_all_reduce_is_never_above_the_ring(
    ranks: int, size: Size, link: Link, node: int | None
) -> None:
    assume(node is None or ranks <= node or ranks % node == 0)
    fabric = Fabric(ranks, link, None if node is None else Node(node, link))
    ring = ring_all_reduce(ranks, size, link)
    for family in (choice.ALL_REDUCE, choice.library(choice.ALL_REDUCE)):
        assert choice.cheapest(family, fabric, size)[1].total <= ring.total


@given(ranks=ranks, size=sizes, link=links)
def test_no_all_reduce_moves_fewer_bytes_than_the_ring(ranks: int, size: Size, link: Link) -> None:
    least = ring_all_reduce(ranks, size, link).bandwidth
    for algorithm in choice.ALL_REDUCE:
        fabric = Fabric(ranks, link, Node(ranks, link))
        if algorithm.refusal(fabric) is None:
            assert not_above(least, algorithm.cost(fabric, size).bandwidth)


@settings(deadline=None)
@given(ranks=st.integers(2, 512), link=links)
def test_ranges_name_the_cheapest_on_both_sides_of_every_border(ranks: int, link: Link) -> None:
    fabric, family = Fabric(ranks, link), choice.library(choice.ALL_REDUCE)
    found = choice.ranges(family, fabric)
    for here, after in itertools.pairwise(found):
        assert here.up_to is not None
        assert choice.cheapest(family, fabric, here.up_to * 0.999)[0].name == here.algorithm
        assert choice.cheapest(family, fabric, here.up_to * 1.001)[0].name == after.algorithm
    assert found[-1].up_to is None


settings_of_jobs = st.builds(
    lambda ranks, link, parameters, compute, zero: Setting(
        ranks=ranks,
        link=link,
        parameters=parameters,
        compute=Time.from_ms(compute),
        zero=zero,
        origins={"node": Origin.ASSUMED},
    ),
    ranks,
    links,
    st.floats(1e5, 1e12),
    st.floats(0.1, 1e5),
    st.integers(0, 3),
)


@given(job=settings_of_jobs, mib=st.floats(0.01, 1e6))
def test_buckets_never_cost_less_than_one_message(job: Setting, mib: float) -> None:
    row = bucket_row(job, Size.from_mib(mib))
    whole = backward_cost(job.zero, job.ranks, job.message, job.link)
    assert not_above(whole, row.total)
    assert (row.count == 1) == row.covers_model == (not row.overlaps)


@settings(deadline=None)
@given(job=settings_of_jobs, count=st.integers(1, 400))
def test_exposed_is_what_playing_the_buckets_one_after_another_leaves(job: Setting, count: int) -> None:
    each = backward_cost(job.zero, job.ranks, job.message, job.link, count).total.base / count
    window, end = job.window.base, 0.0
    for bucket in range(1, count + 1):
        end = max(end, window * bucket / count) + each
    assert exposed(job, job.ranks, count).base == pytest.approx(end - window, rel=1e-6, abs=1e-9 * window)


@settings(deadline=None)
@given(job=settings_of_jobs)
def test_the_advice_is_a_range_of_sizes_within_the_model(job: Setting) -> None:
    advice = recommend(job, job.ranks)
    assert 0 < advice.low.base <= advice.high.base <= job.message.base * (1 + TOLERANCE)
    assert advice.low_count >= advice.high_count >= 1
    if advice.comfortable:
        assert advice.low.base >= 4 * crossover(job.ranks, job.link).base * (1 - TOLERANCE)
        assert advice.high_count >= 24


@settings(deadline=None)
@given(job=settings_of_jobs, count=st.integers(1, 10_000))
def test_where_no_size_is_comfortable_none_exposes_less_than_the_advice(job: Setting, count: int) -> None:
    advice = recommend(job, job.ranks)
    assume(not advice.comfortable)
    assert advice.exposed.base <= 1.1 * exposed(job, job.ranks, count).base * (1 + 1e-6)


@given(parameters=st.floats(1, 1e13), ranks=ranks)
def test_each_zero_stage_keeps_less_and_stage_3_keeps_its_share_of_everything(
    parameters: float, ranks: int
) -> None:
    totals = [stage_memory(parameters, ranks, stage).total.bytes for stage in range(4)]
    assert totals == sorted(totals, reverse=True)
    assert totals[0] == pytest.approx(16 * parameters)
    assert totals[3] == pytest.approx(16 * parameters / ranks)


@given(ranks=st.integers(2, 10_000_000))
def test_the_depth_of_a_tree_is_the_smallest_that_holds_all_ranks(ranks: int) -> None:
    depth = algorithms.tree_depth(ranks)
    assert 2 ** (depth - 1) < ranks <= 2**depth


@given(ranks=ranks, size=st.floats(1e3, 1e12).map(Size.from_bytes), link=links)
def test_the_two_tree_stream_has_its_closed_form_once_there_is_a_block_for_each_tree(
    ranks: int, size: Size, link: Link
) -> None:
    depth, wire, latency = algorithms.tree_depth(ranks), (size / link.rate).base, link.latency.base
    assume(wire / latency * depth / 2 >= 1)
    closed = 2 * depth * latency + wire + math.sqrt(8 * depth * latency * wire)
    assert algorithms.two_tree_stream(ranks, size, link).total.base == pytest.approx(closed)


def test_one_rank_costs_nothing_by_any_formula() -> None:
    for formula in ALL:
        assert formula(1, Size.from_mib(25), worked().link).total.base == 0
