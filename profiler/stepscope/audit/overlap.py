"""Overlap of communication with compute: the four figures of METRICS section 2, exact to the nanosecond."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from stepscope import intervals as iv
from stepscope.intervals import Intervals
from stepscope.trace.recording import CollectiveOp, Phase, Recording, Work


@dataclass(frozen=True, slots=True)
class Overlap:
    """Lengths in ns. hidden_backward + hidden_other + exposed = comm, always."""

    comm: int
    hidden_backward: int
    hidden_other: int
    exposed: int
    exposed_spans: Intervals


def measure(comm: Intervals, backward: Intervals, compute: Intervals) -> Overlap:
    """Split communication into what backward compute hides, what other compute hides, and what nothing hides."""
    hidden = iv.intersect(comm, compute)
    by_backward = iv.total(iv.intersect(hidden, backward))
    exposed = iv.subtract(comm, compute)
    result = Overlap(iv.total(comm), by_backward, iv.total(hidden) - by_backward, iv.total(exposed), exposed)
    assert result.hidden_backward + result.hidden_other + result.exposed == result.comm
    return result


@dataclass(frozen=True, slots=True)
class Hidden:
    """How much of one collective ran beside backward compute, and how much beside none; ns."""

    by_backward: int
    exposed: int


def hidden_by_row(recording: Recording, unions: ComputeUnions) -> dict[int, Hidden]:
    """For each of a recording's collectives, by its row."""
    ops = recording.collectives
    start, end = (np.array([getattr(op, side) for op in ops], dtype=np.int64) for side in ("start", "end"))
    by_backward = iv.covered_within(unions.backward, start, end)
    exposed = end - start - iv.covered_within(unions.everything, start, end)
    found = zip(ops, by_backward.tolist(), exposed.tolist(), strict=True)
    return {op.row: Hidden(beside, alone) for op, beside, alone in found}


def comm_union(ops: Iterable[CollectiveOp]) -> Intervals:
    """The time in which any of some collectives ran."""
    return span_union((op.start, op.end) for op in ops)


def span_union(spans: Iterable[tuple[int, int]]) -> Intervals:
    """The union of spans given as pairs of start and end."""
    array = np.array(list(spans), dtype=np.int64).reshape(-1, 2)
    return iv.union(array[:, 0], array[:, 1])


def work_union(work: Work) -> Intervals:
    """The time in which any of some compute ran."""
    return iv.union(work.start, work.end)


@dataclass(frozen=True, slots=True)
class ComputeUnions:
    """A recording's compute as unions: all of it, all of backward, and what each step launched in each phase.

    Communication of a step is hidden by whatever compute ran beside it, but only backward compute that the same step
    launched counts as its backward.
    """

    everything: Intervals
    backward: Intervals
    launched: dict[tuple[int, Phase], Intervals]

    @classmethod
    def of(cls, recording: Recording) -> ComputeUnions:
        """Unions of one recording, built once."""
        work = recording.compute
        key = work.step.astype(np.int64) * len(Phase) + work.phase
        order = np.argsort(key, kind="stable")
        found, first = np.unique(key[order], return_index=True)
        launched = {
            (int(one) // len(Phase), Phase(int(one) % len(Phase))): work_union(work.where(rows))
            for one, rows in zip(found, np.split(order, first[1:]), strict=False)
        }
        return cls(work_union(work), work_union(work.where(work.phase == Phase.BACKWARD)), launched)

    def phase(self, step: int, phase: Phase) -> Intervals:
        """What a step launched in one phase."""
        return self.launched.get((step, phase), iv.EMPTY)

    def of_step(self, step: int) -> Intervals:
        """All compute that a step launched."""
        phases = np.concatenate([self.phase(step, phase) for phase in Phase])
        return iv.union(phases[:, 0], phases[:, 1])
