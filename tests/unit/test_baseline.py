"""An audit held against an earlier one: what fails, what is noise, what can't be told."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

import sample_audits as samples
from compared_jobs import STEADY, hiding, job
from stepscope.compare.baseline import Held, hold
from stepscope.compare.between import compare


def by_figure(held: list[Held]) -> dict[str, Held]:
    return {one.figure: one for one in held}


def test_what_got_worse_by_more_than_the_tolerance_fails_and_says_by_how_much() -> None:
    held = by_figure(hold(job(cost=20.0), job(cost=60.0), 0.05))
    cost = held["cost_share"]
    assert cost.failed
    assert cost.sentence == (
        "cost of communication (median of steps): 5.0 % became 15.0 %, +10.0 points (95 % interval +10.0 to +10.0): "
        "worse by more than the tolerance of 5 points"
    )
    assert [one.figure for one in held.values() if one.failed] == ["cost_share"]


def test_exposed_time_counts_in_points_of_the_baselines_step() -> None:
    held = by_figure(hold(job(exposed=60.0), job(exposed=84.0), 0.05))
    assert held["grad.exposed_ms"].failed
    assert "60.00 ms became 84.00 ms, +6.0 points of the baseline's step" in held["grad.exposed_ms"].sentence


def test_worse_within_the_tolerance_passes_and_says_so() -> None:
    held = by_figure(hold(job(cost=60.0), job(cost=64.0), 0.05))
    assert not held["cost_share"].failed
    assert held["cost_share"].sentence.endswith("worse, within the tolerance of 5 points")


def test_a_worsening_that_may_be_chance_passes_and_is_called_one_all_the_same() -> None:
    noisy = [300.0, 500.0, 350.0, 450.0, 400.0, 330.0]
    cost = by_figure(hold(job(noisy), job([wall * 0.98 for wall in noisy]), 0.0))["cost_share"]
    assert (cost.failed, cost.untold) == (False, True)
    assert ": 0.3 points worse, but within noise (about " in cost.sentence
    assert cost.sentence.endswith(" steps a side would tell)")


def test_a_worsening_within_noise_and_tolerance_is_no_caution() -> None:
    noisy = [300.0, 500.0, 350.0, 450.0, 400.0, 330.0]
    cost = by_figure(hold(job(noisy), job([wall * 0.98 for wall in noisy]), 0.05))["cost_share"]
    assert (cost.failed, cost.untold) == (False, False)


def test_an_improvement_is_called_one() -> None:
    held = by_figure(hold(job(cost=60.0, exposed=60.0), job(cost=5.0, exposed=0.0), 0.0))
    assert not any(one.failed for one in held.values())
    assert held["cost_share"].sentence.endswith("-13.7 points (95 % interval -13.8 to -13.7): better")
    assert held["overlap_backward"].sentence.endswith(": no difference")


@pytest.mark.parametrize(
    ("before", "after", "change", "verdict"),
    [(60.0, 120.0, "+33.3", "better"), (120.0, 60.0, "-33.3", "worse by more than the tolerance of 1 point")],
)
def test_overlap_changes_with_the_sign_of_its_value_as_a_comparison_says(
    before: float, after: float, change: str, verdict: str
) -> None:
    a, b = hiding(before), hiding(after)
    held = by_figure(hold(a, b, 0.01))["overlap_backward"]
    assert held.sentence.endswith(f", {change} points (95 % interval {change} to {change}): {verdict}")
    assert held.failed == (verdict != "better")
    compared = next(one for one in compare(a, b, ("a", "b")).figures if one.figure == "overlap_backward")
    assert compared.change is not None
    assert f"{100 * compared.change:+.1f}" == change
    assert compared.says == verdict.split(maxsplit=1)[0]


def test_with_too_few_steps_to_tell_noise_what_got_worse_by_more_than_the_tolerance_fails() -> None:
    held = by_figure(hold(job(STEADY[:2], cost=4.0), job(STEADY[:2], cost=200.0), 0.05))
    assert [name for name, one in held.items() if one.failed] == ["cost_share"]
    assert all(one.untold != one.failed for one in held.values())
    assert "record 4 or more on both sides" in held["cost_share"].sentence


def test_a_figure_that_only_the_baseline_has_fails() -> None:
    held = by_figure(hold(job(), samples.inconclusive(), 0.05))
    assert {one.failed for one in held.values()} == {True}
    assert (
        held["cost_share"].sentence == "cost of communication: the baseline has it, and this audit does not"
    )


def test_a_figure_that_the_baseline_lacks_is_told_and_fails_nothing() -> None:
    held = hold(replace(samples.no_communication(), buckets=[]), job(), 0.05)
    assert all(one.untold and not one.failed for one in held)
