"""The backward passes of a step, with the gradients that each produced and the collectives that reduced them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stepscope.audit.case import RankStep
from stepscope.replay.joined import Key
from stepscope.trace import gloo, host
from stepscope.trace.recording import NO_TIME, CollectiveOp, Phase
from stepscope.trace.steps import Window
from stepscope.units import plural

_ACCUMULATE_GRAD = "torch::autograd::AccumulateGrad"
_FLOAT32 = 4
_SAME = 0.01
"""Gradients and collectives whose elements differ by less than this share are the same ones."""


@dataclass(frozen=True, slots=True)
class Gradient:
    """One parameter's gradient: when it was there and when the host took it in, in ns, and its elements."""

    time: int
    launch: int
    elements: int


@dataclass(frozen=True, slots=True)
class Round:
    """One backward pass on one rank; ns on the recording's clock.

    ops: the gradient collectives launched from its start until the next one's, in launch order. gradients: in order of
    arrival, empty where shapes were not recorded. start, end: of its compute.
    """

    index: int
    ops: tuple[CollectiveOp, ...]
    gradients: tuple[Gradient, ...]
    start: int
    end: int

    @property
    def keys(self) -> list[Key]:
        """Its collectives as the replay names them."""
        return [(self.index, op.row) for op in self.ops]

    @property
    def reduced_within(self) -> bool:
        """Whether backward itself launched the collectives, as DDP's reducer does."""
        return bool(self.ops) and all(op.phase == Phase.BACKWARD for op in self.ops)

    def sent(self, op: CollectiveOp) -> int:
        """When a collective was sent: launched on a CPU, begun on a device, whose host runs ahead; ns."""
        return op.launch if op.stream is None else op.start

    @property
    def first_sent(self) -> int:
        """When its first collective was sent."""
        return self.sent(self.ops[0])

    @property
    def bytes(self) -> int:
        """Of all its collectives whose size is known."""
        return sum(op.bytes or 0 for op in self.ops)

    @property
    def element_size(self) -> int:
        """Bytes of an element as it is reduced."""
        sizes = [op.dtype.size for op in self.ops if op.dtype is not None]
        return sizes[0] if sizes else _FLOAT32

    @property
    def complete(self) -> bool:
        """Whether the gradients are known and are what was reduced."""
        if not self.ops or any(op.elements is None for op in self.ops):
            return False
        reduced = sum(op.elements or 0 for op in self.ops)
        return abs(sum(g.elements for g in self.gradients) - reduced) <= _SAME * reduced


def rounds(one: RankStep) -> list[Round]:
    """The backward passes of a rank's step, in order; forward's compute between two tells them apart."""
    return one.kept("rounds", lambda: _rounds(one))


def _rounds(one: RankStep) -> list[Round]:
    starts = _starts(one)
    if not len(starts):
        return []
    ops = sorted(
        (op for op in one.ops if op.gradient and op.launch != NO_TIME),
        key=lambda op: op.launch,
    )
    arrived = _gradients(one)
    work = one.recording.compute
    mine = (work.step == one.number) & (work.phase == Phase.BACKWARD)
    round_of = np.searchsorted(starts, work.launch[mine], side="right") - 1
    found = []
    for number in range(len(starts)):
        here = round_of == number
        found.append(
            Round(
                index=one.index,
                ops=tuple(op for op in ops if _round_of(starts, op.launch) == number),
                gradients=tuple(g for g in arrived if _round_of(starts, g.launch) == number),
                start=int(work.start[mine][here].min()),
                end=int(work.end[mine][here].max()),
            )
        )
    return found


def reducing_rounds(one: RankStep) -> list[Round]:
    """The backward passes whose gradients were reduced."""
    return [round_ for round_ in rounds(one) if round_.ops]


def host_rows(one: RankStep, name: str) -> NDArray[np.int64]:
    """Rows of the host's events of a name that begin within the step."""
    rows = host.select(one.recording.trace, lambda known: known == name)
    inside: NDArray[np.int64] = rows[within(one.step.window, one.recording.trace.events.start[rows])]
    return inside


def within(window: Window, times: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Which times a window holds."""
    held: NDArray[np.bool_] = (times >= window.start) & (times < window.end)
    return held


def _round_of(starts: NDArray[np.int64], launch: int) -> int:
    """Which round a launch belongs to; -1 before the first."""
    return int(np.searchsorted(starts, launch, side="right")) - 1


def _starts(one: RankStep) -> NDArray[np.int64]:
    """When each backward pass launched its first compute: the first after some of forward's. No two launch at one time."""
    work = one.recording.compute
    mine = (work.step == one.number) & np.isin(work.phase, (Phase.FORWARD, Phase.BACKWARD))
    order = np.argsort(work.launch[mine], kind="stable")
    launch, phase = work.launch[mine][order], work.phase[mine][order]
    backward = phase == Phase.BACKWARD
    begins = backward & np.concatenate(([True], ~backward[:-1])) if len(backward) else backward
    starts: NDArray[np.int64] = np.unique(launch[begins])
    return starts


def _gradients(one: RankStep) -> list[Gradient]:
    """In order of arrival: when they had been copied for the reducer, else when backward had them."""
    copies = one.basis.copies_of.get(one.number, ())
    operators = _accumulate_operators(one)
    if not copies or len(copies) < len(operators):
        return operators
    if any(copy.elements is None for copy in copies):
        return []
    found = [Gradient(copy.end, copy.launch, copy.elements or 0) for copy in copies]
    return sorted(found, key=lambda gradient: gradient.time)


def _accumulate_operators(one: RankStep) -> list[Gradient]:
    """The operators that take a gradient in; it is there once all that was launched until then has run."""
    trace, events = one.recording.trace, one.recording.trace.events
    found = []
    for row in host_rows(one, _ACCUMULATE_GRAD).tolist():
        elements = gloo.total_elements(trace.shapes.get(row))
        if elements is None:
            return []
        found.append(Gradient(_over(one, int(events.end[row])), int(events.start[row]), elements))
    return sorted(found, key=lambda gradient: gradient.time)


def _over(one: RankStep, launched: int) -> int:
    """When the step's compute that the host had launched by a time had run."""
    if one.recording.device == "cpu":
        return launched
    work = one.recording.compute
    before = (work.step == one.number) & (work.launch <= launched) & (work.launch != NO_TIME)
    return int(work.end[before].max()) if before.any() else launched


def sizes_in_words(ops: Sequence[CollectiveOp], noun: str = "bucket") -> str:
    """How many collectives of what sizes: `1 bucket of 40 MiB`."""
    sizes = [op.bytes / 2**20 for op in ops if op.bytes is not None]
    if not sizes:
        return f"{len(ops)} collectives of unknown size"
    some = ", ".join(f"{size:.2g}" for size in sizes[:6]) + (", ..." if len(sizes) > 6 else "")
    return f"{plural(len(ops), noun)} of {some} MiB"
