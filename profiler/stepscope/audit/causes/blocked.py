"""Which buckets were complete and were not sent."""

from __future__ import annotations

from itertools import accumulate

from stepscope.audit.causes.rounds import Round
from stepscope.stats import median
from stepscope.trace.recording import CollectiveOp


def buckets_held_up(round_: Round) -> list[CollectiveOp]:
    """The collectives that left although, by then, gradients enough for them and for the next one lay ready.

    DDP sends a bucket the moment it is complete, so when one is sent, no more than that bucket lies ready. Host times are
    compared: on the device, a busy link makes a bucket late as well.
    """
    if not round_.complete:
        return []
    sizes = [op.elements or 0 for op in round_.ops]
    sent_before = [0, *accumulate(sizes)]
    held = []
    for number, op in enumerate(round_.ops[:-1]):
        there = sum(gradient.elements for gradient in round_.gradients if gradient.launch <= op.launch)
        if there - sent_before[number] >= sizes[number] + sizes[number + 1]:
            held.append(op)
    return held


def median_size(round_: Round) -> float:
    """The size of its buckets in bytes: what they are taken to be filled up to."""
    return median([op.bytes or 0 for op in round_.ops])
