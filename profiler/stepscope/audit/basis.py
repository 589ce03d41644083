"""What is worked out once for a recording and used for each of its steps."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from stepscope import intervals as iv
from stepscope.audit.overlap import ComputeUnions, Hidden, hidden_by_row
from stepscope.audit.schedule import Ready, ready_times
from stepscope.audit.starvation import starved_spans
from stepscope.audit.validity import reasons_invalid
from stepscope.intervals import Intervals
from stepscope.ranks.pairing import Pairing
from stepscope.trace.recording import CollectiveOp, GradientCopy, Recording

_OfStep = TypeVar("_OfStep", CollectiveOp, GradientCopy)

_REPLAYED_STEPS = 8
"""Of more valid steps than this, the verdict and the causes take so many, evenly spread: replaying a step takes far longer
than measuring it, and more of them would hardly make the answer surer. All steps are measured and listed."""


@dataclass(frozen=True, slots=True)
class Basis:
    """One recording, prepared for its steps to be measured."""

    recording: Recording
    unions: ComputeUnions
    busy: Intervals
    """All device activity."""
    starved: Intervals
    invalid: dict[int, str]
    hidden_of: Mapping[int, Hidden]
    """Row of a collective to what hid it."""
    ops_of: Mapping[int, Sequence[CollectiveOp]]
    """Step number to its collectives, by start."""
    copies_of: Mapping[int, Sequence[GradientCopy]]
    """Step number to the gradients that were copied for the reducer in it."""
    ready_of: Mapping[int, Ready]
    """Row of a gradient collective to when it could have started."""
    wire_of: Mapping[int, int]
    """Row of a collective to its transfer time in ns, for those that could be laid beside the other ranks'."""
    met_at: Mapping[int, int]
    """Row of a gradient collective to when the last rank was ready for it, on this rank's clock; where that is known."""

    def buckets(self, step: int) -> list[CollectiveOp]:
        """A step's gradient collectives, in launch order."""
        return sorted((op for op in self.ops_of.get(step, ()) if op.gradient), key=lambda op: op.launch)

    def wire_span(self, op: CollectiveOp) -> tuple[int, int]:
        """When a collective was on the wire: its end, since waiting comes first; all of it where no rank tells more."""
        return op.end - self.wire_of.get(op.row, op.end - op.start), op.end


def prepare(
    recordings: Sequence[Recording], pairing: Pairing, run: Mapping[str, Any] | None = None
) -> list[Basis]:
    """The basis of every recording. run: run.json of a recorded run."""
    static_graph = any(module.get("static_graph") for module in (run or {}).get("ddp") or [])
    copies = [_by_step(recording.copies) for recording in recordings]
    ready = [_ready(*both) for both in zip(recordings, copies, strict=True)]
    met = _meetings(pairing, ready)
    unions = [ComputeUnions.of(recording) for recording in recordings]
    return [
        Basis(
            recording=recording,
            unions=unions[index],
            busy=iv.union(recording.busy_start, recording.busy_end),
            starved=starved_spans(recording),
            invalid=reasons_invalid(recording, static_graph=static_graph),
            hidden_of=hidden_by_row(recording, unions[index]),
            ops_of=_by_step(recording.collectives),
            copies_of=copies[index],
            ready_of=ready[index],
            wire_of=pairing.wires(index),
            met_at=met[index],
        )
        for index, recording in enumerate(recordings)
    ]


def _by_step(items: Sequence[_OfStep]) -> dict[int, list[_OfStep]]:
    found: dict[int, list[_OfStep]] = defaultdict(list)
    for item in items:
        found[item.step].append(item)
    return found


def _ready(recording: Recording, copies: Mapping[int, Sequence[GradientCopy]]) -> dict[int, Ready]:
    found: dict[int, Ready] = {}
    for step, ops in _by_step([op for op in recording.collectives if op.gradient]).items():
        buckets = sorted(ops, key=lambda op: op.launch)
        times = ready_times(recording, buckets, copies.get(step, []))
        found |= {op.row: ready for op, ready in zip(buckets, times, strict=True) if ready is not None}
    return found


def _meetings(pairing: Pairing, ready: Sequence[Mapping[int, Ready]]) -> list[dict[int, int]]:
    """For each recording, when the last rank was ready for each gradient collective.

    The common end of a synchronising collective lays the ranks' clocks on one another: no clock is fitted for it.
    """
    met: list[dict[int, int]] = [{} for _ in ready]
    for one in pairing.paired:
        if not one.synchronising or not all(op.row in ready[index] for index, op in one.members.items()):
            continue
        latest = max(ready[index][op.row].time - op.end for index, op in one.members.items())
        for index, op in one.members.items():
            met[index][op.row] = op.end + latest
    return met


def replayed_steps(bases: Sequence[Basis]) -> list[int]:
    """The numbers of the steps that are replayed: the valid ones, or some of them evenly spread."""
    windows = [(basis, window.number) for basis in bases for window in basis.recording.steps.windows]
    valid = sorted({number for basis, number in windows if number not in basis.invalid})
    spread = np.linspace(0, len(valid) - 1, min(len(valid), _REPLAYED_STEPS)).round().astype(int)
    return [valid[place] for place in spread.tolist()]
