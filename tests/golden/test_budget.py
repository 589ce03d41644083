"""The figures of the worked example, to their printed digits, and the two that it prints wrong."""

from __future__ import annotations

import pytest

from budget_setting import LINK, worked
from measured_runs import calibration, fit
from stepscope.budget.calibrated import measured_model
from stepscope.budget.links import Link
from stepscope.budget.plan import make_budget
from stepscope.budget.quantities import Rate, Time
from stepscope.budget.result import Communication, ScalePoint
from stepscope.budget.ring import crossover


@pytest.fixture(scope="module")
def made() -> Communication:
    communication = make_budget(worked()).communication
    assert communication is not None
    return communication


def at_256() -> ScalePoint:
    return make_budget(worked(scale_to=(256,))).scaling[-1]


def test_the_message_is_2600_mb_or_2480_mib() -> None:
    message = make_budget(worked()).message
    assert message.bytes == 2.6e9
    assert f"{message.mib:.0f}" == "2480"


def test_the_ring_takes_1_24_and_201_5_together_202_7_ms(made: Communication) -> None:
    cost = made.ring.cost
    figures = [f"{cost.latency.ms:.2f}", f"{cost.bandwidth.ms:.1f}", f"{made.ring.total.ms:.1f}"]
    assert figures == ["1.24", "201.5", "202.7"]
    assert f"{made.ring.bandwidth_over_latency:.0f}" == "162"


def test_it_is_50_7_percent_of_the_step_and_66_4_percent_efficient_fully_exposed(made: Communication) -> None:
    assert f"{made.ring.share:.1%}" == "50.7%"
    assert f"{made.ring.exposed_efficiency:.1%}" == "66.4%"
    assert made.ring.ceiling == 1.0


def test_it_fits_in_267_ms_of_backward_with_64_ms_or_24_percent_to_spare(made: Communication) -> None:
    ring = made.ring
    assert ring.fits
    assert [f"{ring.window.ms:.0f}", f"{ring.slack.ms:.0f}", f"{ring.margin:.0%}"] == ["267", "64", "24%"]


def test_the_crossover_is_16_mb_or_15_26_mib(made: Communication) -> None:
    assert f"{made.ring.crossover.mb:.0f}" == "16"
    assert f"{made.ring.crossover.mib:.2f}" == "15.26"


def test_the_bare_rule_and_the_verdict_disagree() -> None:
    budget = make_budget(worked())
    assert budget.heuristic is not None
    assert budget.heuristic.label == "communication-bound"
    assert budget.verdict.label == "communication-sensitive"
    assert budget.verdict.realistic == (0.80, 0.90)
    assert budget.verdict.reason == (
        "202.7 ms of gradient communication, as one message, fit in 266.7 ms of backward with a thin margin of 24 %. "
        "Overlap can hide most of it, but never the last bucket, and whatever breaks the overlap makes the job "
        "communication-bound. Expect 80 to 90 % efficiency rather than 100 %."
    )


@pytest.mark.parametrize(
    ("index", "row"),
    [
        (0, ("1", "2480", "3276.7", "93.9", True, False)),
        (1, ("8", "310", "585.9", "65.6", True, False)),
        (2, ("16", "155", "393.7", "48.8", True, True)),
        (3, ("25", "100", "325.5", "38.1", True, True)),
        (4, ("100", "25", "232.5", "13.3", True, True)),
    ],
)
def test_the_bucket_table(
    made: Communication, index: int, row: tuple[str, str, str, str, bool, bool]
) -> None:
    bucket = made.buckets[index]
    assert (
        f"{bucket.bucket.mib:g}",
        str(bucket.count),
        f"{bucket.total.ms:.1f}",
        f"{100 * bucket.latency_share:.1f}",
        bucket.overlaps,
        bucket.bandwidth_bound,
    ) == row


def test_the_advice_is_64_to_100_mib(made: Communication) -> None:
    advice = made.recommended
    assert (advice.low.mib, advice.high.mib) == (64, 100)
    assert (advice.low_count, advice.high_count) == (39, 25)
    assert advice.comfortable


def test_ddps_default_is_1_6_times_the_crossover_and_62_percent_over_the_ideal(made: Communication) -> None:
    assert f"{made.recommended.default_over_crossover:.1f}" == "1.6"
    assert f"{made.recommended.default_over_ideal:.0%}" == "62%"


def test_on_8_fast_ranks_the_crossover_is_12_mb_and_25_mb_are_twice_that() -> None:
    star = crossover(8, Link(Time.from_us(5), Rate.from_gb_per_s(300)))
    assert star.mb == pytest.approx(12)
    assert f"{25 / star.mb:.0f}" == "2"


def test_accumulating_4_costs_12_7_percent_of_1600_ms(made: Communication) -> None:
    fix = made.fixes.accumulation
    assert (fix.micro_batches, f"{fix.compute.ms:.0f}") == (4, "1600")
    assert (f"{fix.share:.1%}", f"{fix.exposed_efficiency:.1%}") == ("12.7%", "88.8%")


def test_zero_2_keeps_2_95_gib_where_the_worked_example_prints_3_48() -> None:
    plain, _, two, _ = make_budget(worked()).memory
    assert f"{plain.total.gib:.1f}" == "19.4"
    assert f"{two.parameters.gib:.2f}" == "2.42"
    assert f"{(two.gradients + two.optimizer).gib:.2f}" == "0.53"
    assert f"{two.total.gib:.2f}" == "2.95"
    assert two.volume == plain.volume == 1.0


def test_the_group_inside_a_node_and_the_hierarchy(made: Communication) -> None:
    inside, hierarchy = made.fixes.intra_node, made.fixes.hierarchical
    assert inside.available is False
    assert inside.cost is not None
    assert f"{inside.cost.total.ms:.2f}" == "17.10"
    assert hierarchy.nodes == 4
    assert hierarchy.cost is not None
    assert hierarchy.across is not None
    assert hierarchy.shared_uplink is not None
    assert f"{hierarchy.across.bandwidth.ms:.1f}" == "19.5"
    assert f"{hierarchy.cost.total.ms:.2f}" == "34.86"
    assert f"{hierarchy.shared_uplink.total.ms:.1f}" == "171.4"


def test_at_256_ranks_the_ring_takes_217_4_ms_or_54_3_percent_of_the_step() -> None:
    point = at_256()
    assert (f"{point.total.ms:.1f}", f"{point.share:.1%}") == ("217.4", "54.3%")


def test_at_256_ranks_latency_takes_10_2_ms_or_5_percent() -> None:
    point = at_256()
    assert (f"{point.cost.latency.ms:.1f}", f"{point.cost.latency_share:.0%}") == ("10.2", "5%")
    assert point.latency_growth is not None
    assert f"{point.latency_growth:.0f}" == "8"


def test_at_256_ranks_the_bandwidth_term_is_207_2_ms_where_the_worked_example_prints_207_0() -> None:
    point = at_256()
    assert point.bandwidth_growth is not None
    assert (f"{point.cost.bandwidth.ms:.1f}", f"{point.bandwidth_growth - 1:+.1%}") == ("207.2", "+2.8%")


def test_at_256_ranks_the_crossover_is_122_07_mib_and_25_mib_buckets_take_1227_ms() -> None:
    point = at_256()
    assert f"{point.crossover.mib:.2f}" == "122.07"
    assert f"{point.default_bucket.ms:.0f}" == "1227"
    assert point.batch_growth == 8


def test_below_5_1_mib_nccl_is_not_charged_the_ring(made: Communication) -> None:
    first, last = made.beyond_ring.library_ranges
    assert (first.algorithm, last.algorithm) == ("double binary tree", "ring")
    assert first.up_to is not None
    assert f"{first.up_to.mib:.2f}" == "5.09"
    small = made.beyond_ring.sizes[0]
    assert (f"{small.ring.total.ms:.2f}", f"{small.library.cost.total.ms:.2f}") == ("1.32", "0.62")


def test_the_link_of_the_worked_example_moves_half_a_megabyte_in_one_latency() -> None:
    assert LINK.rate.during(LINK.latency).bytes == pytest.approx(500_000)


def test_a_calibration_that_measured_the_assumed_link_gives_the_same_figures(made: Communication) -> None:
    fabric = calibration(ranks=32, own=fit(alpha_us=20.0, bandwidth_gb_per_s=25.0, floor_us=None))
    terms = measured_model(fabric, 32).terms("all_reduce")
    assert f"{terms.time('all_reduce', 32, make_budget(worked()).message).ms:.1f}" == "202.7"
    assert f"{terms.time('all_reduce', 32, crossover(32, LINK)).ms:.2f}" == "2.48"
    link = Link(terms.alpha, terms.rate, terms.floor)
    assert make_budget(worked(link=link)).communication == made
