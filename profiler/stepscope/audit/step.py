"""One step of one rank: its overlap, its floor, what it cost, and a coarse picture of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from stepscope import intervals as iv
from stepscope.audit import result, schedule
from stepscope.audit.basis import Basis
from stepscope.audit.overlap import Overlap, comm_union, measure, span_union
from stepscope.audit.replayed import Priced
from stepscope.audit.schedule import Ready, Slot, Transfer
from stepscope.audit.waterfall import Circumstances, Parts, backward_window, split
from stepscope.intervals import Intervals
from stepscope.trace.recording import CollectiveOp, Phase
from stepscope.trace.steps import Window
from stepscope.units import NS_PER_MS, ns_to_ms

_FINEST_LANE = 1e-3
"""Gaps shorter than this share of the step are not drawn."""


@dataclass(frozen=True, slots=True)
class MeasuredStep:
    """A step as the verdict needs it, in ns, beside its plain data."""

    window: Window
    overlap: Overlap
    gradient: Overlap | None
    gradient_wire: Overlap | None
    """The same without waiting for other ranks; None where that can't be told."""
    parts: Parts
    """Where the exposed time went."""
    starved_in_backward: int
    """Exposed time inside backward in which the next compute had not been launched, waiting or not."""
    todo: list[Transfer]
    backward_start: int
    backward_end: int
    lanes: int
    buckets: list[tuple[CollectiveOp, Ready | None]]
    priced: Priced | None
    """What its replay gave; None where it could not be replayed."""

    @property
    def wall(self) -> int:
        """Length of the step on the host."""
        return self.window.end - self.window.start

    @property
    def took(self) -> float:
        """How long the step took: on the device where the host runs ahead of it, whose window is then shorter."""
        return self.wall if self.priced is None else self.priced.took

    @property
    def fits(self) -> bool:
        """Whether the gradients' transfers, back to back, are shorter than the backward they could hide behind."""
        return sum(transfer.wire for transfer in self.todo) <= self.backward_end - self.backward_start

    @property
    def cost(self) -> int:
        """What communication cost, between 0 and what was exposed (METRICS 6).

        Without a replay an upper bound: exposed time less what the host starved.
        """
        if self.priced is None:
            return self.overlap.exposed - self.starved_in_backward
        return min(max(0, round(self.priced.cost)), self.overlap.exposed)

    def floor(self, slowdown: float = 1.0) -> float:
        """Exposed ns that no schedule of these buckets avoids, were every transfer so many times as long."""
        return schedule.floor(self.todo, self.backward_end, self.lanes, slowdown)


def measure_step(basis: Basis, window: Window, priced: Priced | None = None) -> MeasuredStep:
    """Everything about one step, from the activities it launched and from its replay."""
    recording, unions = basis.recording, basis.unions
    ops, buckets = basis.ops_of.get(window.number, ()), basis.buckets(window.number)
    backward = unions.phase(window.number, Phase.BACKWARD)
    overlap = measure(comm_union(ops), backward, unions.everything)
    outside = comm_union(op for op in ops if op.phase in (Phase.FORWARD, Phase.OPTIMIZER) and not op.gradient)
    ready = [basis.ready_of.get(op.row) for op in buckets]
    wires = [basis.wire_span(op) for op in buckets]
    paired = any(op.row in basis.wire_of for op in ops)
    inside = backward_window(backward, ops)
    around = Circumstances(
        moving=span_union(map(basis.wire_span, ops)) if paired else None,
        outside=outside,
        starved=basis.starved,
        backward=backward,
        window=inside,
        ideal=_schedule_of_all_ranks(basis, buckets),
    )
    return MeasuredStep(
        window=window,
        overlap=overlap,
        gradient=measure(comm_union(buckets), backward, unions.everything) if buckets else None,
        gradient_wire=measure(span_union(wires), backward, unions.everything) if buckets and paired else None,
        parts=split(overlap.exposed_spans, around),
        starved_in_backward=iv.total(
            iv.intersect(iv.intersect(inside, basis.starved), iv.subtract(overlap.exposed_spans, outside))
        ),
        todo=schedule.transfers(wires, [r.time if r else None for r in ready], recording.lanes),
        backward_start=int(backward[0, 0]) if len(backward) else window.start,
        backward_end=int(backward[-1, 1]) if len(backward) else window.start,
        lanes=recording.lanes,
        buckets=list(zip(buckets, ready, strict=True)),
        priced=priced,
    )


def _schedule_of_all_ranks(basis: Basis, buckets: Sequence[CollectiveOp]) -> list[Slot]:
    """The best schedule of a step's buckets, none of which starts before the last rank is ready for it."""
    ready = [
        basis.met_at.get(op.row, r.time if (r := basis.ready_of.get(op.row)) else None) for op in buckets
    ]
    lanes = basis.recording.lanes
    return schedule.best_schedule(
        schedule.transfers(list(map(basis.wire_span, buckets)), ready, lanes), lanes
    )


def starved_share(basis: Basis, step: MeasuredStep) -> float | None:
    """Share of a step in which the device was idle for want of launches; None on a CPU, which launches to itself."""
    if basis.recording.device == "cpu":
        return None
    return iv.total(iv.clip(basis.starved, step.window.start, step.window.end)) / step.wall


def gradient_totals(step: MeasuredStep) -> result.GradientTotals | None:
    """The gradient figures of a step, or None where it reduced none."""
    grad = step.gradient
    if grad is None:
        return None
    floor = min(step.floor(), float(grad.exposed))  # what a step did, its buckets can do
    wire = step.gradient_wire
    return result.GradientTotals(
        comm_ms=ns_to_ms(grad.comm),
        hidden_backward_ms=ns_to_ms(grad.hidden_backward),
        hidden_other_ms=ns_to_ms(grad.hidden_other),
        exposed_ms=ns_to_ms(grad.exposed),
        floor_ms=ns_to_ms(floor),
        excess_ms=ns_to_ms(grad.exposed - floor),
        wire_ms=ns_to_ms(wire.comm) if wire else None,
        wire_hidden_backward_ms=ns_to_ms(wire.hidden_backward) if wire else None,
        wire_hidden_other_ms=ns_to_ms(wire.hidden_other) if wire else None,
        wire_exposed_ms=ns_to_ms(wire.exposed) if wire else None,
    )


def plain_step(basis: Basis, step: MeasuredStep, *, priced: bool) -> result.Step:
    """A step as it stands in audit.json; priced: whether what communication cost in it is known."""
    window, phases = step.window, len(basis.unions.backward) > 0
    number, overlap = window.number, step.overlap
    busy = iv.clip(basis.busy, window.start, window.end)
    return result.Step(
        step=number,
        valid=number not in basis.invalid,
        why_invalid=basis.invalid.get(number),
        start_ms=ns_to_ms(window.start),
        wall_ms=ns_to_ms(step.wall),
        step_ms=ns_to_ms(step.took) if priced else None,
        comm_ms=ns_to_ms(overlap.comm),
        compute_ms=ns_to_ms(iv.total(basis.unions.of_step(number))),
        backward_compute_ms=ns_to_ms(iv.total(basis.unions.phase(number, Phase.BACKWARD)))
        if phases
        else None,
        hidden_backward_ms=ns_to_ms(overlap.hidden_backward) if phases else None,
        hidden_other_ms=ns_to_ms(overlap.hidden_other) if phases else None,
        exposed_ms=ns_to_ms(overlap.exposed),
        collectives=len(basis.ops_of.get(number, ())),
        unknown_phase=0,  # a step is made of what has a launch record
        device_busy_share=iv.total(busy) / step.wall,
        host_starved_share=starved_share(basis, step),
        grad=gradient_totals(step),
        waterfall=_waterfall(step.parts) if overlap.comm else None,
        cost_ms=ns_to_ms(step.cost) if overlap.comm and priced else None,
        timeline=_timeline(basis, step),
    )


def _waterfall(parts: Parts) -> result.Waterfall:
    return result.Waterfall(
        peer_wait_ms=ns_to_ms(parts.peer_wait) if parts.peer_wait is not None else None,
        outside_backward_ms=ns_to_ms(parts.outside_backward),
        host_starved_ms=ns_to_ms(parts.host_starved),
        device_blocked_ms=ns_to_ms(parts.device_blocked),
        late_launch_ms=ns_to_ms(parts.late_launch),
        queue_ms=ns_to_ms(parts.queue),
        tail_ms=ns_to_ms(parts.tail),
        unattributed_ms=ns_to_ms(parts.unattributed),
    )


def _timeline(basis: Basis, step: MeasuredStep) -> result.Timeline:
    number, wall = step.window.number, step.wall
    return result.Timeline(
        forward=_lane(basis.unions.phase(number, Phase.FORWARD), wall),
        backward=_lane(basis.unions.phase(number, Phase.BACKWARD), wall),
        optimizer=_lane(basis.unions.phase(number, Phase.OPTIMIZER), wall),
        exposed=_lane(step.overlap.exposed_spans, wall),
    )


def _lane(spans: Intervals, wall: int) -> list[result.Span]:
    """Spans to draw, in ms: neighbours nearer than the finest gap are one."""
    gap = int(wall * _FINEST_LANE)
    merged = iv.union(spans[:, 0], spans[:, 1] + gap)
    drawn = np.round((merged - [0, gap]) / NS_PER_MS, 6)
    return [(start, end) for start, end in drawn.tolist()]
