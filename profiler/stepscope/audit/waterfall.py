"""Where the exposed time went: every exposed nanosecond has one name (METRICS section 5).

The parts are cut off one after the other, each from what the ones before it left, so they never overlap and always add up.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from stepscope import intervals as iv
from stepscope.audit.overlap import span_union
from stepscope.audit.schedule import Slot
from stepscope.intervals import Intervals
from stepscope.trace.recording import CollectiveOp, Phase


@dataclass(frozen=True, slots=True)
class Parts:
    """Lengths in ns, in the order in which they are cut off; peer_wait is None where waiting can't be told."""

    peer_wait: int | None
    outside_backward: int
    host_starved: int
    device_blocked: int
    late_launch: int
    queue: int
    tail: int
    unattributed: int


@dataclass(frozen=True, slots=True)
class Circumstances:
    """What the exposed time of a step is laid against."""

    moving: Intervals | None
    """When anything of this step was on the wire; None where waiting can't be told from it."""
    outside: Intervals
    """When a collective of forward's or the optimizer's ran, gradients left out."""
    starved: Intervals
    backward: Intervals
    """The step's backward compute."""
    window: Intervals
    """Where backward is (`backward_window`)."""
    ideal: Sequence[Slot]
    """The gradients' transfers, had each been launched when it was ready."""


def split(exposed: Intervals, where: Circumstances) -> Parts:
    """Name every part of a step's exposed time."""
    waiting = iv.EMPTY if where.moving is None else iv.subtract(exposed, where.moving)
    late, queue, tail = _after_backward(where.backward, where.ideal, exposed)
    rest = exposed
    lengths: list[int] = []
    starved = iv.intersect(where.window, where.starved)
    for spans in (waiting, where.outside, starved, where.window, late, queue, tail):
        lengths.append(iv.total(iv.intersect(rest, spans)))
        rest = iv.subtract(rest, spans)
    return Parts(
        peer_wait=None if where.moving is None else lengths[0],
        outside_backward=lengths[1],
        host_starved=lengths[2],
        device_blocked=lengths[3],
        late_launch=lengths[4],
        queue=lengths[5],
        tail=lengths[6],
        unattributed=iv.total(rest),
    )


def backward_window(backward: Intervals, ops: Iterable[CollectiveOp]) -> Intervals:
    """From the first to the last of a step's backward compute, and from the collectives that its launches put before that.

    A host that runs ahead may launch a gather of parameters, for one, while the device is still in forward.
    """
    if not len(backward):
        return iv.EMPTY
    launched = [op.start for op in ops if op.phase == Phase.BACKWARD]
    return span_union([(min([int(backward[0, 0]), *launched]), int(backward[-1, 1]))])


def _after_backward(backward: Intervals, ideal: Sequence[Slot], exposed: Intervals) -> list[Intervals]:
    """Late launch, queue and tail: after the ideal schedule's end, before its last transfer, and that transfer."""
    if not len(backward) or not ideal or not len(exposed):
        return [iv.EMPTY] * 3
    last = max(ideal, key=lambda slot: slot.end)
    start, over = int(backward[-1, 1]), int(last.end)
    late = span_union([(max(start, over), int(exposed[-1, 1]))])
    queue = span_union([(start, min(int(last.start), over))])
    tail = span_union([(max(start, int(last.start)), over)])
    return [late, queue, tail]
