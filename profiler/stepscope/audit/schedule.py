"""The best schedule there could have been: when buckets were ready, and the floor that no schedule beats (METRICS 4)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

import numpy as np

from stepscope.trace.recording import CollectiveOp, GradientCopy, Phase, Recording


@dataclass(frozen=True, slots=True)
class Ready:
    """When a bucket's last gradient was there, on the device's clock in ns.

    exact: found by matching the gradients' sizes with the bucket's; else an upper bound, the last gradient that arrived
    before the bucket was launched.
    """

    time: int
    exact: bool
    parameters: int | None = None


def ready_times(
    recording: Recording, buckets: Sequence[CollectiveOp], copies: Sequence[GradientCopy]
) -> list[Ready | None]:
    """When each of one step's gradient collectives, in launch order, could have started; None where nothing tells.

    copies: the step's gradients, in order of arrival.
    """
    return _by_sizes(copies, buckets) or [_before_launch(recording, copies, bucket) for bucket in buckets]


def _by_sizes(copies: Sequence[GradientCopy], buckets: Sequence[CollectiveOp]) -> list[Ready | None]:
    """Cut the gradients, in order of arrival, into groups of the buckets' sizes; empty if they do not fit exactly.

    Gradients of earlier micro-batches that were only accumulated come first and belong to no bucket.
    """
    if (
        not copies
        or any(copy.elements is None for copy in copies)
        or any(b.elements is None for b in buckets)
    ):
        return []
    arrived = list(accumulate(copy.elements or 0 for copy in copies))
    found: list[Ready | None] = []
    filled = arrived[-1] - sum(bucket.elements or 0 for bucket in buckets)
    if filled != 0 and filled not in arrived:
        return []
    first = arrived.index(filled) + 1 if filled else 0
    for bucket in buckets:
        filled += bucket.elements or 0
        last = int(np.searchsorted(arrived, filled))
        if last >= len(arrived) or arrived[last] != filled or not _launches(copies, last, bucket):
            return []
        group = copies[first : last + 1]
        found.append(Ready(max(copy.end for copy in group), exact=True, parameters=len(group)))
        first = last + 1
    return found


def _launches(copies: Sequence[GradientCopy], last: int, bucket: CollectiveOp) -> bool:
    """Whether a bucket was launched by its last gradient: after that one and before the next; else the fit is chance."""
    following = copies[last + 1].launch if last + 1 < len(copies) else bucket.launch + 1
    return copies[last].launch <= bucket.launch < following


def _before_launch(
    recording: Recording, copies: Sequence[GradientCopy], bucket: CollectiveOp
) -> Ready | None:
    ends = [copy.end for copy in copies if copy.launch <= bucket.launch]
    if ends:
        return Ready(max(ends), exact=False)
    work = recording.compute
    before = (work.step == bucket.step) & (work.phase == Phase.BACKWARD) & (work.launch <= bucket.launch)
    return Ready(int(work.end[before].max()), exact=False) if before.any() else None


Wire = tuple[int, int]

_NOTHING = 1e-6
"""A transfer of which less than this is left (ns) is over."""


@dataclass(frozen=True, slots=True)
class Transfer:
    """One bucket's part in a schedule: ready at a time, then so much transfer at the full rate of the link; ns."""

    ready: int
    wire: float


def transfers(wires: Sequence[Wire], ready: Sequence[int | None], lanes: int) -> list[Transfer]:
    """What each bucket had to move, freed of the sharing that it met: with two at once, each has half the link.

    wires: when each bucket was on the wire, start and end in ns, waiting for other ranks left out where it is known.
    """
    alone = [_work_at_full_rate(wire, wires) if lanes > 1 else float(wire[1] - wire[0]) for wire in wires]
    return [Transfer(time, work) for time, work in zip(ready, alone, strict=True) if time is not None]


def _work_at_full_rate(wire: Wire, others: Sequence[Wire]) -> float:
    """The integral of 1 / (transfers running at once) over a bucket's own time."""
    edges = set(wire)
    for other in others:
        edges.update(t for t in other if wire[0] < t < wire[1])
    return sum(
        (end - start) / sum(1 for other in others if other[0] <= start and other[1] >= end)
        for start, end in pairwise(sorted(edges))
    )


@dataclass(frozen=True, slots=True)
class Slot:
    """When a transfer is on the wire in a schedule; ns."""

    start: float
    end: float


def best_schedule(todo: Sequence[Transfer], lanes: int, slowdown: float = 1.0) -> list[Slot]:
    """Each transfer's slot if it starts as soon as it is ready and a lane is free, in order.

    Lanes share the link equally. slowdown multiplies every transfer.
    """
    now = 0.0
    slots: list[Slot] = [Slot(0.0, 0.0)] * len(todo)
    running: dict[int, float] = {}
    waiting = list(range(len(todo)))
    while waiting or running:
        if waiting and len(running) < lanes and float(todo[waiting[0]].ready) <= now:
            number = waiting.pop(0)
            running[number] = todo[number].wire * slowdown
            slots[number] = Slot(now, now)
            continue
        waits = bool(waiting) and len(running) < lanes
        until_ready = todo[waiting[0]].ready - now if waits else float("inf")
        next_over = min(running, key=lambda number: running[number], default=None)
        until_over = float("inf") if next_over is None else running[next_over] * len(running)
        passed = min(until_ready, until_over)
        share = passed / max(1, len(running))
        running = {number: left - share for number, left in running.items()}
        if next_over is None or until_ready < until_over:
            now = float(todo[waiting[0]].ready)  # not by addition: large times would never get there
            continue
        now += passed
        for number in [n for n, left in running.items() if left <= _NOTHING or n == next_over]:
            del running[number]
            slots[number] = Slot(slots[number].start, now)
    return slots


def floor(todo: Sequence[Transfer], backward_end: int, lanes: int, slowdown: float = 1.0) -> float:
    """The exposed time that no schedule of these buckets can avoid, in ns."""
    ends = [slot.end for slot in best_schedule(todo, lanes, slowdown)]
    return max(0.0, max(ends, default=0.0) - backward_end)
