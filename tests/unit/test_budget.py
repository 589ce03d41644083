"""Units that can't be mixed, domains of the algorithms, ZeRO's traffic, verdicts, and inputs that no job has."""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable
from typing import Any

import pytest

from budget_setting import LINK, worked
from stepscope.budget import algorithms, choice
from stepscope.budget.buckets import recommend
from stepscope.budget.encode import plain
from stepscope.budget.links import Fabric, Link, Node
from stepscope.budget.plan import make_budget, ring_budget
from stepscope.budget.quantities import Rate, Size, Time
from stepscope.budget.setting import Origin, Setting
from stepscope.errors import InputError

FAST = Link(Time.from_us(5), Rate.from_gb_per_s(300))


def test_a_gb_a_mib_and_a_bit_are_three_things() -> None:
    assert Size.from_mib(1).bytes == 1_048_576
    assert Rate.from_gb_per_s(1).during(Time(1.0)).bytes == 1e9
    assert Rate.from_gbit_per_s(8) == Rate.from_gb_per_s(1)
    assert Size.from_bytes(2**30).gib == 1
    assert Size.from_bytes(1e6).mb == 1


@pytest.mark.parametrize("operation", [operator.add, operator.sub, operator.lt, operator.truediv])
@pytest.mark.parametrize(
    ("left", "right"),
    [
        (Size.from_mib(1), Time.from_ms(1)),
        (Time.from_ms(1), Size.from_mib(1)),
        (Time.from_ms(1), Rate.from_gb_per_s(1)),
        (Rate.from_gb_per_s(1), Size.from_mib(1)),
    ],
)
def test_quantities_of_two_kinds_neither_add_nor_compare_nor_divide(
    operation: Callable[[Any, Any], Any], left: Any, right: Any
) -> None:
    with pytest.raises(TypeError):
        operation(left, right)


@pytest.mark.parametrize("bare", [1, 1.0])
def test_a_bare_number_is_no_quantity(bare: float) -> None:
    size: Any = Size.from_mib(1)
    with pytest.raises(TypeError):
        size + bare
    with pytest.raises(TypeError):
        size < bare  # noqa: B015 - the comparison itself is what must fail
    assert size != bare


def test_a_size_over_a_rate_is_a_time() -> None:
    assert (Size.from_bytes(2.5e9) / Rate.from_gb_per_s(25)).ms == pytest.approx(100)
    assert Size.from_mib(8) / Size.from_mib(2) == 4
    assert Time.from_ms(3) / Time.from_ms(2) == 1.5


def test_equal_numbers_of_two_kinds_are_not_equal() -> None:
    size: Any = Size(1.0)
    assert size != Time(1.0)


def test_json_names_the_unit_of_every_figure() -> None:
    made = plain(make_budget(worked(scale_to=(64,))))
    assert made["schema"] == "stepscope.cost/1"
    assert made["message_bytes"] == 2.6e9
    assert made["communication"]["ring"]["total_ms"] == pytest.approx(202.74)
    assert made["communication"]["buckets"][0]["bucket_bytes"] == 2**20
    assert "global_batch" not in made


@pytest.mark.parametrize(
    ("ranks", "start_ups", "volume"),
    [(2, 2, 1.0), (4, 4, 1.5), (8, 6, 1.75), (3, 4, 3.0), (6, 6, 3.5), (63, 12, 2 + 62 / 32)],
)
def test_halving_doubling_pays_two_whole_messages_where_ranks_are_no_power_of_two(
    ranks: int, start_ups: int, volume: float
) -> None:
    cost = algorithms.halving_doubling_all_reduce(ranks, Size.from_bytes(25e9), LINK)
    assert cost.latency.us == pytest.approx(20 * start_ups)
    assert cost.bandwidth.base == pytest.approx(volume)


def test_direct_algorithms_are_taken_inside_a_node_only() -> None:
    size = Size.from_mib(1)
    inside = choice.cheapest(choice.ALL_REDUCE, Fabric(8, FAST, Node(8, FAST)), size)[0]
    across = choice.cheapest(choice.ALL_REDUCE, Fabric(16, LINK, Node(8, FAST)), size)[0]
    assert (inside.name, across.name) == ("two-shot", "hierarchical")
    unknown = {row.name: row.refusal for row in choice.candidates(choice.ALL_REDUCE, Fabric(8, FAST), size)}
    assert unknown["one-shot"] == f"needs all ranks in one node; {choice.NODE_ASSUMED}"
    assert unknown["hierarchical"] == f"needs several nodes; {choice.NODE_ASSUMED}"
    assert unknown["ring"] is None


def test_one_shot_is_the_cheapest_of_the_smallest_messages_in_a_node() -> None:
    found = choice.ranges(choice.ALL_REDUCE, Fabric(8, FAST, Node(8, FAST)))
    assert [row.algorithm for row in found] == ["one-shot", "two-shot"]
    assert found[0].up_to is not None
    # alpha + 7 S/B = 2 alpha + 1.75 S/B where S = alpha B / 5.25
    assert found[0].up_to.bytes == pytest.approx(1.5e6 / 5.25)


@pytest.mark.parametrize(
    ("stage", "backward", "outside", "volume"),
    [(0, 202.74, 0, 1), (1, 101.37, 101.37, 1), (2, 101.37, 101.37, 1), (3, 202.74, 101.37, 1.5)],
)
def test_zero_moves_part_of_the_volume_out_of_backward(
    stage: int, backward: float, outside: float, volume: float
) -> None:
    made = make_budget(worked(zero=stage))
    assert made.communication is not None
    ring = made.communication.ring
    assert ring.in_backward.ms == pytest.approx(backward)
    assert ring.outside_backward.ms == pytest.approx(outside)
    assert made.memory[stage].volume == volume
    assert ring.total.ms == pytest.approx(202.74 * volume)


@pytest.mark.parametrize(("stage", "total"), [(0, 202.74), (1, 202.74), (2, 506.85), (3, 1216.44)])
def test_with_4_micro_batches_only_stages_that_keep_parts_of_gradients_reduce_every_time(
    stage: int, total: float
) -> None:
    assert ring_budget(worked(zero=stage, accumulate=4)).total.ms == pytest.approx(total)


def test_the_parameters_that_zero_1_gathers_after_the_step_have_nothing_to_hide_behind() -> None:
    ring = ring_budget(worked(zero=1))
    assert ring.fits
    assert ring.least_exposed.ms == pytest.approx(101.37)
    assert ring.ceiling == pytest.approx(400 / 501.37)


def test_what_does_not_fit_in_backward_is_communication_bound_at_best() -> None:
    made = make_budget(worked(compute=Time.from_ms(150)))
    assert made.verdict.label == "communication-bound"
    assert made.verdict.reason == (
        "202.7 ms of gradient communication, as one message, do not fit in 100.0 ms of backward. "
        "Even perfect overlap leaves 102.7 ms exposed: at best 59.3 % efficient."
    )


def test_little_communication_is_compute_bound_whatever_overlaps() -> None:
    made = make_budget(worked(compute=Time.from_ms(4000)))
    assert made.heuristic is not None
    assert (made.verdict.label, made.heuristic.label) == ("compute-bound", "not communication-bound")
    assert made.verdict.realistic is None


def test_one_rank_has_no_communication_and_its_memory_still_stands() -> None:
    made = make_budget(worked(ranks=1, scale_to=(8,)))
    assert made.verdict.label == "no communication"
    assert made.communication is None
    assert made.heuristic is None
    assert {row.total.bytes for row in made.memory} == {16 * 1.3e9}
    (point,) = made.scaling
    assert (point.ranks, point.bandwidth_growth, point.batch_growth) == (8, None, 8)


def test_scaling_starts_with_the_setting_itself() -> None:
    assert [point.ranks for point in make_budget(worked(scale_to=(64, 128))).scaling] == [32, 64, 128]
    assert make_budget(worked()).scaling == ()


def test_a_bucket_larger_than_the_model_is_one_bucket_of_the_models_size() -> None:
    made = make_budget(worked(buckets=(Size.from_mib(4000),))).communication
    assert made is not None
    (row,) = made.buckets
    assert (row.count, row.overlaps, row.bandwidth_bound, row.covers_model) == (1, False, True, True)
    assert row.total.ms == pytest.approx(202.74)
    assert row.exposed == row.total


def test_where_the_crossover_is_large_the_advice_is_a_compromise_that_says_so() -> None:
    advice = recommend(worked(), 256)
    assert not advice.comfortable
    assert (advice.low_count, advice.high_count) == (7, 6)
    assert advice.exposed.ms == pytest.approx(46.17, abs=0.01)
    assert advice.reason.startswith(
        "No size does both: 4 times S* is 488.3 MiB, which makes 6 buckets, and 24 are"
    )


def test_past_the_critical_batch_eight_times_the_ranks_save_far_fewer_steps() -> None:
    point = make_budget(worked(scale_to=(256,), batch=4, critical_batch=512)).scaling[-1]
    assert (point.global_batch, point.over_critical) == (1024, 2)
    assert point.steps_ratio == pytest.approx((1 + 512 / 1024) / (1 + 512 / 128))


def test_every_input_says_where_it_came_from() -> None:
    rows = make_budget(worked(origins={"buckets": Origin.ASSUMED, "rate": Origin.MEASURED})).inputs
    origins = {row.option: row.origin for row in rows}
    assert (origins["--gpus"], origins["--buckets"], origins["--bw"]) == (
        "command line",
        "assumed",
        "measured",
    )
    assert rows[-1].origin == "assumed"


def test_an_assumed_node_that_does_not_divide_the_ranks_only_leaves_the_hierarchy_out() -> None:
    made = make_budget(worked(ranks=30, origins={"node": Origin.ASSUMED})).communication
    assert made is not None
    assert made.fixes.hierarchical.cost is None
    assert made.fixes.hierarchical.refusal is not None
    assert made.fixes.hierarchical.refusal.startswith("8 ranks a node, an assumption, do not divide 30")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"ranks": 0}, "ranks (--gpus) of 0 is impossible"),
        ({"parameters": -1.0}, "parameters (--params) of -1 is impossible"),
        ({"parameters": math.nan}, "parameters (--params) of nan is impossible"),
        ({"compute": Time(math.inf)}, "compute (--step-ms) of inf is impossible"),
        ({"accumulate": 0}, "accumulation (--accumulate) of 0 is impossible"),
        ({"buckets": (Size(1.0), Size(0.0))}, "bucket 2 (--buckets) of 0 is impossible"),
        ({"backward_share": 1.0}, "a backward share of 1 is none"),
        ({"zero": 4}, "there is no ZeRO stage 4"),
        ({"scale_to": (1,)}, "--scale-to needs 2 ranks or more"),
        ({"node": Node(5, FAST)}, "5 ranks a node do not divide 32 ranks"),
        ({"batch": 0.0}, "batch (--batch) of 0 is impossible"),
    ],
)
def test_inputs_that_no_job_has_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=re.escape(message)):
        worked(**changes)


@pytest.mark.parametrize("value", [0.0, -1.0, math.nan, math.inf])
def test_a_link_needs_a_latency_and_a_bandwidth(value: float) -> None:
    with pytest.raises(InputError, match="latency"):
        Link(Time(value), LINK.rate)
    with pytest.raises(InputError, match="bandwidth"):
        Link(LINK.latency, Rate(value))


def test_a_setting_needs_only_what_nobody_can_assume() -> None:
    made = Setting(ranks=2, parameters=1e9, link=LINK, compute=Time.from_ms(1))
    assert [bucket.mib for bucket in made.buckets] == [1, 8, 16, 25, 100]
    assert made.message.bytes == 2e9
