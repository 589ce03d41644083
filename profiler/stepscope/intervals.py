"""Algebra of half-open intervals on integer nanoseconds.

A set of intervals is an int64 array of shape (n, 2) with rows [start, end). A *union* is sorted by start, its rows
neither overlap nor touch, and no row is empty; every function here that returns intervals returns a union. Integers
make the sums exact: hidden + hidden_other + exposed is comm to the nanosecond.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Intervals = NDArray[np.int64]

EMPTY: Intervals = np.empty((0, 2), dtype=np.int64)

_EVER = np.iinfo(np.int64)


def union(start: NDArray[np.int64], end: NDArray[np.int64]) -> Intervals:
    """Merge intervals given as two arrays of equal length, in any order; empty and reversed ones are dropped."""
    keep = end > start
    start, end = start[keep], end[keep]
    if not len(start):
        return EMPTY
    order = np.argsort(start, kind="stable")
    start = start[order]
    reach = np.maximum.accumulate(end[order])
    first = np.concatenate(([True], start[1:] > reach[:-1]))
    last = np.concatenate((first[1:], [True]))
    return _rows(start[first], reach[last])


def _rows(start: NDArray[np.int64], end: NDArray[np.int64]) -> Intervals:
    rows = np.empty((len(start), 2), dtype=np.int64)
    rows[:, 0], rows[:, 1] = start, end
    return rows


def total(a: Intervals) -> int:
    """Length of a union, in nanoseconds."""
    return int((a[:, 1] - a[:, 0]).sum())


def _near(a: Intervals, b: Intervals) -> Intervals:
    """The rows of a that lie in the reach of b: a step is short beside its file, and the rest need not be looked at."""
    if not len(b):
        return EMPTY
    first = np.searchsorted(a[:, 1], b[0, 0], side="right")
    last = np.searchsorted(a[:, 0], b[-1, 1], side="left")
    return a[first:last]


def intersect(a: Intervals, b: Intervals) -> Intervals:
    """a and b."""
    few, many = (a, b) if len(a) < len(b) else (b, a)
    first = np.searchsorted(many[:, 1], few[:, 0], side="right")
    met = np.searchsorted(many[:, 0], few[:, 1], side="left") - first
    one = np.repeat(np.arange(len(few)), met)
    other = np.arange(len(one)) + np.repeat(first - np.cumsum(met) + met, met)
    return _rows(np.maximum(few[one, 0], many[other, 0]), np.minimum(few[one, 1], many[other, 1]))


def subtract(a: Intervals, b: Intervals) -> Intervals:
    """a and not b."""
    b = _near(b, a)
    if not len(b):
        return a
    between = _rows(np.concatenate(([_EVER.min], b[:, 1])), np.concatenate((b[:, 0], [_EVER.max])))
    return intersect(a, between)


def clip(a: Intervals, start: int, end: int) -> Intervals:
    """The part of a inside [start, end)."""
    return intersect(a, union(np.array([start]), np.array([end])))


def covered_before(a: Intervals, times: NDArray[np.int64]) -> NDArray[np.int64]:
    """For each time t, the length of a inside (-inf, t): the integral of a's indicator. Shape of `times` kept."""
    if not len(a):
        return np.zeros_like(times)
    lengths = np.concatenate(([0], np.cumsum(a[:, 1] - a[:, 0])))
    index = np.searchsorted(a[:, 0], times, side="right")
    whole = lengths[np.maximum(index - 1, 0)]
    last = np.maximum(index - 1, 0)
    partial = np.minimum(times, a[last, 1]) - a[last, 0]
    return np.where(index > 0, whole + partial, 0)


def covered_within(a: Intervals, start: NDArray[np.int64], end: NDArray[np.int64]) -> NDArray[np.int64]:
    """For each [start, end), the length of a inside it."""
    if not len(start):
        return np.zeros(0, dtype=np.int64)
    a = _near(a, np.array([[start.min(), end.max()]], dtype=np.int64))
    return covered_before(a, end) - covered_before(a, start)
