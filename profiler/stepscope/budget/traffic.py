"""What a step communicates under each ZeRO stage, in passes of the ring, and when.

A pass is a reduce-scatter or an all-gather of the whole model. Plain data parallelism all-reduces gradients in backward: two
passes. Stages 1 and 2 reduce-scatter gradients in backward and all-gather parameters after the optimizer step: the same two,
but the second has no backward to hide behind. Stage 3 all-gathers parameters in forward and again in backward: three, hence
1.5 times the volume. From stage 2 on gradients are kept in parts, so every micro-batch reduces its own; below, one reduction
an optimizer step is enough (`no_sync`).

Source: Rajbhandari, Rasley, Ruwase and He, "ZeRO: memory optimizations toward training trillion parameter models", SC 2020,
sections 5 and 7.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from stepscope.budget.beside import exposed_in_order
from stepscope.budget.calibrated import PASSES as PASSES_OF
from stepscope.budget.links import FREE, Cost, Link
from stepscope.budget.quantities import ZERO_TIME, Size, Time
from stepscope.budget.ring import PASSES_OF_ALL_REDUCE, ring_pass
from stepscope.budget.setting import Setting


@dataclass(frozen=True, slots=True)
class Passes:
    """Passes over the ring in one micro-batch's forward and backward, and after the optimizer step."""

    forward: int
    backward: int
    after: int
    every_micro_batch: bool

    @property
    def volume(self) -> float:
        """The bytes of one micro-batch's step, as a multiple of an all-reduce's."""
        return (self.forward + self.backward + self.after) / PASSES_OF_ALL_REDUCE


PASSES = {
    0: Passes(0, 2, 0, every_micro_batch=False),
    1: Passes(0, 1, 1, every_micro_batch=False),
    2: Passes(0, 1, 1, every_micro_batch=True),
    3: Passes(1, 2, 0, every_micro_batch=True),
}
"""By ZeRO stage."""


@dataclass(frozen=True, slots=True)
class Traffic:
    """Communication of one optimizer step. forward and backward: of one reduction; there are `reductions` of them.

    sticks_out: what of known buckets sticks out of backward at best, since none starts before it is full.
    """

    forward: Cost
    backward: Cost
    after: Cost
    reductions: int
    sticks_out: Time = ZERO_TIME

    @property
    def total(self) -> Cost:
        """All of it."""
        return (self.forward + self.backward) * self.reductions + self.after

    def least_exposed(self, forward_window: Time, backward_window: Time) -> Time:
        """What overlap can't hide, at best: what is longer than the compute it runs beside, and what runs beside none."""
        in_backward = max(_over(self.backward.total, backward_window), self.sticks_out)
        return (_over(self.forward.total, forward_window) + in_backward) * self.reductions + self.after.total


def _over(communication: Time, window: Time) -> Time:
    return max(communication - window, ZERO_TIME)


def backward_cost(stage: int, ranks: int, size: Size, link: Link, buckets: int = 1) -> Cost:
    """One backward's communication of `size`, in so many buckets: each pays the whole latency term, and the floor at least."""
    whole = ring_pass(ranks, size, link) * PASSES[stage].backward
    return Cost(max(whole.latency * buckets, link.floor * buckets - whole.bandwidth), whole.bandwidth)


def traffic(setting: Setting, ranks: int, accumulate: int) -> Traffic:
    """The step's communication at that number of ranks and micro-batches; gradients in the recorded buckets, where known."""
    passes = PASSES[setting.zero]
    one = ring_pass(ranks, setting.message, setting.link) if ranks > 1 else FREE
    times = bucket_times(setting, ranks)
    # the forward of stage 3 gathers parameters, and its backward does so again: the rest of backward's passes is gradients
    gradients = in_buckets(setting, ranks, times) if times else one * (passes.backward - passes.forward)
    return Traffic(
        forward=one * passes.forward,
        backward=gradients + one * passes.forward,
        after=one * passes.after,
        reductions=accumulate if passes.every_micro_batch else 1,
        sticks_out=exposed_in_order([size for _, size in setting.sequence], times, setting.window)
        if times
        else ZERO_TIME,
    )


def bucket_times(setting: Setting, ranks: int) -> list[Time]:
    """What each recorded gradient collective takes by the model; empty where nothing was recorded, and for one rank."""
    model = setting.model
    if model is None or ranks < 2:
        return []
    return [model.terms(kind).time(kind, ranks, size) for kind, size in setting.sequence]


def in_buckets(setting: Setting, ranks: int, times: Sequence[Time]) -> Cost:
    """Those times in two parts; what a floor adds counts as latency."""
    assert setting.model is not None
    transfers = [
        size / setting.model.terms(kind).rate * (PASSES_OF[kind] * (ranks - 1) / ranks)
        for kind, size in setting.sequence
    ]
    bandwidth = sum(transfers, ZERO_TIME)
    return Cost(sum(times, ZERO_TIME) - bandwidth, bandwidth)
