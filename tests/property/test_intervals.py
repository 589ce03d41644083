"""The interval algebra against brute force: every nanosecond of a small axis classed on its own."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from stepscope import intervals as iv

AXIS = 60

spans = st.lists(st.tuples(st.integers(0, AXIS), st.integers(0, AXIS)), max_size=12)


def _union(pairs: list[tuple[int, int]]) -> iv.Intervals:
    array = np.array(pairs, dtype=np.int64).reshape(-1, 2)
    return iv.union(array[:, 0], array[:, 1])


def _points(pairs: list[tuple[int, int]]) -> set[int]:
    """The unit cells [t, t + 1) that half-open intervals cover; reversed ones cover none."""
    return {t for start, end in pairs for t in range(start, end)}


def _cells(a: iv.Intervals) -> set[int]:
    return _points([(int(start), int(end)) for start, end in a])


def _assert_is_union(a: iv.Intervals) -> None:
    assert a.dtype == np.int64
    assert a.shape == (len(a), 2)
    assert (a[:, 1] > a[:, 0]).all(), "no row is empty"
    assert (a[1:, 0] > a[:-1, 1]).all(), "rows are sorted and neither overlap nor touch"


@given(spans)
def test_union_covers_exactly_what_its_intervals_cover(a: list[tuple[int, int]]) -> None:
    found = _union(a)
    _assert_is_union(found)
    assert _cells(found) == _points(a)
    assert iv.total(found) == len(_points(a))


@given(spans, spans)
def test_intersection_and_difference_are_those_of_sets(
    a: list[tuple[int, int]], b: list[tuple[int, int]]
) -> None:
    both, only = iv.intersect(_union(a), _union(b)), iv.subtract(_union(a), _union(b))
    for found in (both, only):
        _assert_is_union(found)
    assert _cells(both) == _points(a) & _points(b)
    assert _cells(only) == _points(a) - _points(b)
    assert iv.total(both) + iv.total(only) == iv.total(_union(a)), "the two parts add up to the whole"


@given(spans, st.integers(0, AXIS), st.integers(0, AXIS))
def test_clip_keeps_what_lies_inside_the_bounds(a: list[tuple[int, int]], start: int, end: int) -> None:
    found = iv.clip(_union(a), start, end)
    _assert_is_union(found)
    assert _cells(found) == _points(a) & _points([(start, end)])


@given(spans, st.lists(st.tuples(st.integers(0, AXIS), st.integers(0, AXIS)), min_size=1, max_size=5))
def test_coverage_of_a_window_is_the_count_of_its_covered_cells(
    a: list[tuple[int, int]], windows: list[tuple[int, int]]
) -> None:
    start = np.array([min(w) for w in windows], dtype=np.int64)
    end = np.array([max(w) for w in windows], dtype=np.int64)
    expected = [len(_points(a) & _points([(min(w), max(w))])) for w in windows]
    assert iv.covered_within(_union(a), start, end).tolist() == expected
