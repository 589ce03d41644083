"""Contention: how much longer the same compute took while a collective was running (METRICS section 6).

It is no part of the replay's cost, which keeps every activity as long as it was. The same activity is found again in other
steps by its name and its place among those of that name. A kernel that never ran alone is compared with others of its name,
if all of those that ran alone took about as long and it took less than twice that: a kernel's name does not tell its size.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stepscope import intervals as iv
from stepscope.replay.timeline import Timeline
from stepscope.stats import bootstrap_interval, median
from stepscope.trace.recording import Recording

_FEWEST = 3
_ALIKE = 0.1
"""Activities of one name are of one size where half of them differ from their median by at most this share."""

_SAME_SIZE = 2.0


@dataclass(frozen=True, slots=True)
class Contention:
    """Of one recording: ns a step, its 95 % interval over steps, and the share of compute beside collectives compared."""

    lost: float
    interval: tuple[float, float]
    compared: float


@dataclass(frozen=True, slots=True)
class _Run:
    """One execution of an activity; ns."""

    step: int
    name: int
    place: int
    took: int
    beside: int


def contention(recording: Recording, timeline: Timeline | None = None) -> Contention | None:
    """What a recording's compute lost to collectives beside it; None where too little ran both with and without one."""
    runs = list(_runs(recording, timeline or Timeline(recording.trace)))
    usual = _times_alone(runs, by_name=recording.device != "cpu")
    beside = [run for run in runs if run.beside]
    compared = [run for run in beside if _found(usual, run) is not None]
    steps = sorted({run.step for run in runs})
    if not compared or len(steps) < 2:
        return None
    lost = dict.fromkeys(steps, 0.0)
    for run in compared:
        lost[run.step] += run.took - (_found(usual, run) or 0.0)
    interval = bootstrap_interval(list(lost.values()))
    assert interval is not None
    share = sum(run.beside for run in compared) / sum(run.beside for run in beside)
    return Contention(median(list(lost.values())), interval, share)


def _runs(recording: Recording, timeline: Timeline) -> Iterable[_Run]:
    """The compute of all steps, operators inside operators left out."""
    rows = _compute_rows(recording, timeline)
    events = timeline.events
    ops = recording.collectives
    start, end = (np.array([getattr(op, side) for op in ops], dtype=np.int64) for side in ("start", "end"))
    beside = iv.covered_within(iv.union(start, end), events.start[rows], events.end[rows]).tolist()
    steps = recording.steps.of(events.start[rows]).tolist()
    seen: dict[tuple[int, int], int] = defaultdict(int)
    for row, step, overlap in zip(rows.tolist(), steps, beside, strict=True):
        name = int(events.name[row])
        yield _Run(step, name, seen[step, name], int(events.duration[row]), overlap)
        seen[step, name] += 1


def _compute_rows(recording: Recording, timeline: Timeline) -> NDArray[np.int64]:
    communicates = [op.row for op in recording.collectives]
    return timeline.computing_rows(on_device=recording.device != "cpu", without=communicates)


def _times_alone(runs: Iterable[_Run], *, by_name: bool) -> Mapping[Hashable, float]:
    """By name and place, and maybe by name alone, how long an activity usually takes with no collective beside it."""
    alone: dict[Hashable, list[int]] = defaultdict(list)
    for run in runs:
        if not run.beside:
            alone[run.name, run.place].append(run.took)
            alone[run.name].append(run.took)
    return {
        key: median(times)
        for key, times in alone.items()
        if len(times) >= _FEWEST and (isinstance(key, tuple) or (by_name and _alike(times)))
    }


def _found(usual: Mapping[Hashable, float], run: _Run) -> float | None:
    itself, others = usual.get((run.name, run.place)), usual.get(run.name)
    if itself is not None or others is None:
        return itself
    return others if run.took < _SAME_SIZE * others else None


def _alike(times: Sequence[int]) -> bool:
    middle = median(times)
    return middle > 0 and median([abs(time - middle) for time in times]) <= _ALIKE * middle
