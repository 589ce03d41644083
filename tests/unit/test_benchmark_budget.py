"""`make bench` fails where reading or auditing has become slower against the floor, whatever the machine."""

from __future__ import annotations

import pytest
from benchmarks.budget import BUDGET, doubts, over_budget
from benchmarks.contest import Contestant

FLOOR = (1.0, 1.5, 1.0, 10.0)
"""Of a machine that is busy in the second round and slow in the last."""


def contestant(name: str, *times_the_floor: float) -> Contestant:
    seconds = [times * floor for times, floor in zip(times_the_floor, FLOOR, strict=False)]
    return Contestant(name, "python", seconds=seconds)


def floor() -> Contestant:
    return Contestant("floor", "python", seconds=list(FLOOR), cpu_seconds=list(FLOOR))


def test_within_the_budget_there_is_nothing_to_say() -> None:
    ours = [contestant(name, *[allowed] * 4) for name, allowed in BUDGET.items()]
    contestants = [floor(), *ours, contestant("hta", 99, 99)]
    assert over_budget(contestants) == []
    assert doubts(contestants) == []


def test_a_regression_and_a_failure_are_said() -> None:
    failed = Contestant("audit", "python", seconds=[1.0], failure="MemoryError")
    slow = contestant("read", *(times * BUDGET["read"] for times in (1.5, 1.01, 1.2, 9)))
    assert over_budget([floor(), slow, failed]) == [
        f"stepscope: read: over its budget of {BUDGET['read']:g} times the floor in every round, "
        f"{1.01 * BUDGET['read']:.2f} at best",
        "stepscope: whole audit: failed: MemoryError",
    ]
    assert doubts([floor(), slow, failed]) == []


@pytest.mark.parametrize("kept_in", range(4))
def test_what_is_over_its_budget_in_all_rounds_but_one_is_told_and_is_no_failure(kept_in: int) -> None:
    allowed = BUDGET["audit"]
    rounds = [2 * allowed] * 4
    rounds[kept_in] = 0.5 * allowed
    contestants = [floor(), contestant("audit", *rounds)]
    assert over_budget(contestants) == []
    assert doubts(contestants) == [
        f"stepscope: whole audit: {2 * allowed:.2f} times the floor in the median, over its budget of {allowed:g}, "
        f"but only {0.5 * allowed:.2f} at best: noise or a regression? Run again with --runs 15"
    ]


def test_rounds_in_which_others_kept_the_machine_busy_do_not_count() -> None:
    """Reading takes two processors, the floor one: without a second one it takes more floors."""
    allowed = BUDGET["audit"]
    slow = contestant("audit", 2 * allowed, 2 * allowed, 0.5 * allowed, 2 * allowed)
    all_busy, third_busy = floor(), floor()
    all_busy.cpu_seconds = [seconds / 2 for seconds in FLOOR]
    third_busy.cpu_seconds[2] = FLOOR[2] / 2
    assert over_budget([all_busy, slow]) == []
    assert doubts([all_busy, slow]) == [
        "Budgets: not judged, for others kept the machine busy in every round; run again when it is quiet"
    ]
    assert over_budget([third_busy, slow]) == [
        f"stepscope: whole audit: over its budget of {allowed:g} times the floor in every round, {2 * allowed:.2f} at best"
    ]
