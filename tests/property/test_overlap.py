"""Overlap against brute force, and the floor against a schedule simulated step by step."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepscope import intervals as iv
from stepscope.audit.overlap import measure
from stepscope.audit.schedule import Transfer, best_schedule
from stepscope.stats import bootstrap_interval, median

AXIS = 80

spans = st.lists(st.tuples(st.integers(0, AXIS), st.integers(1, 20)), max_size=10)


def _union(pairs: list[tuple[int, int]]) -> iv.Intervals:
    array = np.array([(start, start + length) for start, length in pairs], dtype=np.int64).reshape(-1, 2)
    return iv.union(array[:, 0], array[:, 1])


def _cells(pairs: list[tuple[int, int]]) -> set[int]:
    return {t for start, length in pairs for t in range(start, start + length)}


@given(comm=spans, backward=spans, other=spans)
def test_the_four_figures_are_those_of_classing_every_instant(
    comm: list[tuple[int, int]], backward: list[tuple[int, int]], other: list[tuple[int, int]]
) -> None:
    found = measure(_union(comm), _union(backward), _union([*backward, *other]))
    c, b, a = _cells(comm), _cells(backward), _cells([*backward, *other])
    assert found.comm == len(c)
    assert found.hidden_backward == len(c & b)
    assert found.hidden_other == len((c & a) - b)
    assert found.exposed == len(c - a) == iv.total(found.exposed_spans)


def _simulated(todo: list[tuple[int, int]], lanes: int, tick: int) -> float:
    """The end of the schedule by brute force: time in small ticks, the link shared by what is in the lanes."""
    queue = [(ready * tick, wire * tick) for ready, wire in todo]
    running: list[float] = []
    now = 0
    while queue or running:
        while queue and len(running) < lanes and queue[0][0] <= now:
            running.append(float(queue.pop(0)[1]))
        share = 1 / len(running) if running else 0.0
        running = [left - share for left in running]
        running = [left for left in running if left > 1e-9]
        now += 1
    return now / tick


@given(
    st.lists(st.tuples(st.integers(0, 30), st.integers(1, 12)), min_size=1, max_size=6),
    st.sampled_from([1, 2]),
)
def test_the_floors_schedule_is_that_of_a_simulated_link(todo: list[tuple[int, int]], lanes: int) -> None:
    tick = 50
    expected = _simulated(todo, lanes, tick)
    slots = best_schedule([Transfer(ready, wire) for ready, wire in todo], lanes)
    assert max(slot.end for slot in slots) == pytest.approx(expected, abs=(len(todo) + 1) / tick)


@given(st.lists(st.floats(0, 1), min_size=2, max_size=30))
def test_the_bootstrap_interval_holds_the_median_and_stays_in_range(values: list[float]) -> None:
    interval = bootstrap_interval(values)
    assert interval is not None
    assert min(values) <= interval[0] <= interval[1] <= max(values)
    assert interval == bootstrap_interval(values), "the same values always give the same interval"
    assert interval[0] - 1e-12 <= median(values) <= interval[1] + 1e-12


def test_one_value_has_no_interval() -> None:
    assert bootstrap_interval([0.5]) is None
