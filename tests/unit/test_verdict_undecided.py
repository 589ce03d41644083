"""Where an interval holds a threshold, the reason has the figure and the interval that are compared, and names the whole."""

from __future__ import annotations

import pytest

from stepscope.audit.result import Thresholds
from stepscope.audit.wording import Facts, next_step, undecided_cost, undecided_share


@pytest.mark.parametrize(
    ("value", "interval", "said"),
    [
        (
            0.111,
            (0.0882, 0.1195),
            "communication is 11.1 % of the step less its cost, and the interval of 8.8 to 11.9 %",
        ),
        (
            0.1108,
            (0.09994, 0.11947),
            "communication is 11.08 % of the step less its cost, and the interval of 9.99 to 11.95 %",
        ),
        (
            0.11,
            (0.0999991, 0.1195),
            "communication is 11.000 % of the step less its cost, and the interval of 10.000 to 11.950 %",
        ),
    ],
)
def test_the_interval_that_holds_the_threshold_is_told_as_finely_as_shows_it(
    value: float, interval: tuple[float, float], said: str
) -> None:
    assert undecided_share(value, interval, Thresholds()) == (
        f"between comm-sensitive and compute-bound: {said} holds the threshold of 10 %"
    )


def test_of_the_cost_the_threshold_is_named_and_more_steps_are_the_next_step() -> None:
    limits = Thresholds(cost_share=0.125)
    reason = undecided_cost("compute-bound", limits)
    assert (
        reason
        == "between comm-bound and compute-bound: the interval of its cost holds the threshold of 12.5 %"
    )
    run = {"command": ["stepscope", "run", "--steps", "3", "train.py"]}
    facts = Facts(
        "inconclusive", reason, limits, None, True, ranks=2, steps=3, host_bound=False, sharded=False, run=run
    )
    assert next_step(facts) == "record more steps: stepscope run --steps 10 train.py"
