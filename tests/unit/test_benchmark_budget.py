"""`make bench` fails where reading or auditing has become slower against the floor, whatever the machine."""

from __future__ import annotations

import pytest
from benchmarks.read_trace import BUDGET, Contestant, over_budget


def contestant(name: str, seconds: float) -> Contestant:
    return Contestant(name, "python", seconds=[seconds, seconds, 9 * seconds])


@pytest.mark.parametrize("floor", [1.0, 10.0])
def test_within_the_budget_there_is_nothing_to_say(floor: float) -> None:
    ours = [contestant(name, times * floor) for name, times in BUDGET.items()]
    assert over_budget([contestant("floor", floor), *ours, contestant("hta", 99 * floor)]) == []


def test_a_regression_and_a_failure_are_said() -> None:
    failed = Contestant("audit", "python", failure="MemoryError")
    slow = contestant("read", 1.01 * BUDGET["read"])
    assert over_budget([contestant("floor", 1.0), slow, failed]) == [
        "stepscope: read: 3.03 times the floor, over its budget of 3",
        "stepscope: whole audit: failed: MemoryError",
    ]
