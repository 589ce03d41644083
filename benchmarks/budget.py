"""What `make bench` fails on, and what it aims at: times of the floor and of the peers, whatever the machine.

A machine shared with others takes up to one and a half times as long for the same work, now for one process, now for
another. So a time is compared with that of the floor in the same round, and only what is over its budget in every round is
a regression: noise hits some rounds, a slower reader all of them. Over it in the median is said, and is no failure.

Stepscope reads on two processors, the floor on one: where others need the processors all the time, each of its rounds takes
more floors, and that is no regression either. A round counts only where the floor hardly waited for its processor.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import compress
from statistics import median

from benchmarks.contest import Contestant, ratios

BUDGET = {"read": 2.6, "overlap": 2.9, "audit": 4.0}
"""Most wall time, in that of the floor."""
QUIET = 1.25
"""Most wall time of the floor in its processor time, of a round that counts."""
JUDGED_FROM = 100_000_000
"""Bytes of text: of a smaller trace the start of the interpreter and the imports are most of the time."""
AIM_OF_FLOOR = 2.0
"""A whole audit takes no more times the floor, if it can be."""
AIMS = {"hta": 25.0, "tracelens": 5.0}
"""So many times as fast as each of these peers a whole audit is to be."""


def over_budget(contestants: Sequence[Contestant]) -> list[str]:
    """A line for each contestant that is over its budget in every round that counts, or that failed."""
    lines = []
    for one, allowed, found in _judged(contestants):
        if one.failure:
            lines.append(f"{one.label}: failed: {one.failure}")
        elif found and min(found) > allowed:
            lines.append(
                f"{one.label}: over its budget of {allowed:g} times the floor in every round, {min(found):.2f} at best"
            )
    return lines


def doubts(contestants: Sequence[Contestant]) -> list[str]:
    """A line where no round counts, else for each that is over its budget in the median and not in every round."""
    if not any(_quiet(contestants[0])):
        return [
            "Budgets: not judged, for others kept the machine busy in every round; run again when it is quiet"
        ]
    return [
        f"{one.label}: {median(found):.2f} times the floor in the median, over its budget of {allowed:g}, but only "
        f"{min(found):.2f} at best: noise or a regression? Run again with --runs 15"
        for one, allowed, found in _judged(contestants)
        if not one.failure and found and min(found) <= allowed < median(found)
    ]


def _judged(contestants: Sequence[Contestant]) -> list[tuple[Contestant, float, list[float]]]:
    """Those that have a budget, with it, and how many times the floor they took in each round that counts."""
    floor = contestants[0]
    return [
        (one, BUDGET[one.name], list(compress(ratios(one, floor), _quiet(floor))))
        for one in contestants
        if one.name in BUDGET
    ]


def _quiet(floor: Contestant) -> list[bool]:
    return [wall <= QUIET * cpu for wall, cpu in zip(floor.seconds, floor.cpu_seconds, strict=True)]
