"""Contention: how much longer the same compute took while a collective was running (METRICS section 6).

It is no part of the replay's cost, which keeps every activity as long as it was. Compute that ran beside a collective is
compared with what the same took alone. A name does not tell a size, so the same is first what has the same name and the
same place in other steps; else the same name between the same two before and after it, as in every layer of a model; else,
for a kernel, the same name and about the same time. Whichever it is, those that ran alone must have taken alike.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stepscope import intervals as iv
from stepscope.replay.activities import lane_of
from stepscope.replay.timeline import Timeline
from stepscope.trace.recording import NO_TIME, Recording

_FEWEST = 3
_ALIKE = 0.1
"""Activities are of one size where, alone, half of them differ from their median by at most this share."""
_SAME_SIZE = 3.0
"""What took so many times as long as those of its name that ran alone is another size."""
_AROUND = (-2, -1, 0, 1, 2)

Column = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Contention:
    """Of one recording, in columns: what ran beside a collective and could be compared; times in ns.

    row: its event. step: whose. took: as measured. lost: how much longer than alone, below 0 where it was quicker. beside:
    for how much of its time a collective ran. compared: the share of all compute beside collectives that is in here.
    """

    row: Column
    step: Column
    took: Column
    lost: NDArray[np.float64]
    beside: Column
    compared: float

    def by_step(self, steps: Collection[int]) -> dict[int, float]:
        """What each of some steps lost; ns."""
        return {step: float(self.lost[self.step == step].sum()) for step in steps}


def contention(
    recording: Recording, timeline: Timeline, steps: Collection[int] | None = None
) -> Contention | None:
    """What a recording's compute lost to collectives beside it; None where none of it ran both with and without one.

    steps: the only ones that are looked at, if given.
    """
    rows, lane, step = _compute(recording, timeline)
    if steps is not None:
        rows, lane, step = (column[np.isin(step, list(steps))] for column in (rows, lane, step))
    events, ops = timeline.events, recording.collectives
    took = events.duration[rows]
    start, end = (np.array([getattr(op, side) for op in ops], dtype=np.int64) for side in ("start", "end"))
    beside = iv.covered_within(iv.union(start, end), events.start[rows], events.end[rows])
    usual = np.full(len(rows), np.nan)
    for kind in _kinds(events.name[rows], lane, step, by_name=recording.device != "cpu"):
        usual = np.where(np.isnan(usual), _usual(kind, took, beside == 0), usual)
    found = np.flatnonzero((beside > 0) & ~np.isnan(usual))
    if not len(found):
        return None
    lost = took[found] - usual[found]
    compared = float(beside[found].sum() / beside.sum())
    return Contention(rows[found], step[found], took[found], lost, beside[found], compared)


def _compute(recording: Recording, timeline: Timeline) -> tuple[Column, Column, Column]:
    """Rows of what computes, in the order of each stream or thread; which that is; the step that launched it."""
    events = timeline.events
    rows = timeline.computing_rows(
        on_device=recording.device != "cpu", without=[op.row for op in recording.collectives]
    )
    if recording.device == "cpu":
        lane, launch = timeline.threads[rows], events.start[rows]
    else:
        a = timeline.activities
        by_row = np.argsort(a.row)
        places = by_row[np.searchsorted(a.row[by_row], rows)]
        lane, launch = lane_of(events.device[rows], events.stream[rows]), a.launch[places]
    order = np.lexsort((events.start[rows], lane))
    rows, lane, launch = rows[order], lane[order], launch[order]
    known = launch != NO_TIME
    return rows[known], lane[known], recording.steps.of(launch[known]).astype(np.int64)


def _kinds(name: NDArray[np.int32], lane: Column, step: Column, *, by_name: bool) -> Iterator[Column]:
    """Which activities are the same, the surest way first."""
    yield _numbered(np.stack((name, _places(np.stack((name, step), axis=1))), axis=1))
    yield _numbered(_surroundings(name, _numbered(np.stack((lane, step), axis=1))))
    if by_name:
        yield _numbered(name)


def _places(group: NDArray[np.int64]) -> Column:
    """How many of its group come before each activity."""
    number = _numbered(group)
    order = np.argsort(number, kind="stable")
    first = np.searchsorted(number[order], number[order])
    places = np.empty(len(number), dtype=np.int64)
    places[order] = np.arange(len(number)) - first
    return places


def _surroundings(name: NDArray[np.int32], lane: Column) -> NDArray[np.int64]:
    """The names of those before, of each itself and of those after it, on its own lane; shape (activities, 5)."""
    count = len(name)
    around = np.full((count, len(_AROUND)), -1, dtype=np.int64)
    for column, offset in enumerate(_AROUND):
        other = np.arange(count) + offset
        there = (other >= 0) & (other < count)
        there[there] = lane[other[there]] == lane[there]
        around[there, column] = name[other[there]]
    return around


def _numbered(kinds: NDArray[Any]) -> Column:
    """One number per activity, equal for those of one kind; kinds of several columns are folded into one, column by column."""
    columns = kinds.T if kinds.ndim > 1 else [kinds]
    number = np.zeros(len(kinds), dtype=np.int64)
    for column in columns:
        own = np.unique(column, return_inverse=True)[1]
        number = np.unique(number * (int(own.max(initial=0)) + 1) + own, return_inverse=True)[1]
    return number


def _usual(kind: Column, took: Column, alone: NDArray[np.bool_]) -> NDArray[np.float64]:
    """For each activity, what its kind takes alone: NaN where too few did, most took unlike times, or it is of another size.

    The mean, since a few that took much longer, as where the scheduler stopped the thread, are among the others too.
    """
    count = int(kind.max(initial=-1)) + 1
    own, times = kind[alone], took[alone].astype(np.float64)
    middle = _medians(own, times, count)
    apart = _medians(own, np.abs(times - middle[own]), count)
    enough = np.bincount(own, minlength=count) >= _FEWEST
    one_size = times < _SAME_SIZE * middle[own]
    with np.errstate(invalid="ignore"):
        known = enough & (apart <= _ALIKE * middle)
        sums, counts = (np.bincount(own[one_size], weights, count) for weights in (times[one_size], None))
        mean = np.where(known, sums / counts, np.nan)
    return np.where(took < _SAME_SIZE * middle[kind], mean[kind], np.nan)


def _medians(group: Column, values: NDArray[np.float64], count: int) -> NDArray[np.float64]:
    """The median of each group's values, NaN for one without any."""
    order = np.lexsort((values, group))
    sizes = np.bincount(group, minlength=count)
    first = np.concatenate(([0], np.cumsum(sizes)[:-1])) if count else np.empty(0, dtype=np.int64)
    ordered = np.append(values[order], np.nan)
    low, high = first + np.maximum(sizes - 1, 0) // 2, first + sizes // 2
    return np.where(
        sizes > 0,
        (ordered[np.minimum(low, len(values))] + ordered[np.minimum(high, len(values))]) / 2,
        np.nan,
    )
