"""A recorded run as a budget needs it: its traffic and compute, operation by operation. Times of one step, of one rank."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from stepscope.budget.quantities import ZERO_TIME, Size, Time
from stepscope.budget.result import StepComparison


@dataclass(frozen=True, kw_only=True)
class Operation:
    """One collective on one rank. start: on that rank's clock. size, ranks: None where the recording does not tell.

    wire: its transfer, at the end of its duration; None where the other ranks' sides were not found. beside_backward: how long
    backward compute ran beside it; None without phases.
    """

    source: str
    step: int
    kind: str
    gradient: bool
    size: Size | None
    ranks: int | None
    start: Time
    duration: Time
    wire: Time | None
    beside_backward: Time | None

    @property
    def transfer(self) -> tuple[Time, Time]:
        """From and to: the wire time, or all of the duration where waiting can't be told from it."""
        end = self.start + self.duration
        return (self.start if self.wire is None else end - self.wire), end


@dataclass(frozen=True, kw_only=True)
class Recorded:
    """What was recorded. compute, window: a step's compute and backward's part of it (medians over steps of means over ranks).

    operations: of the counted steps, gradients or not. parameters: of the model, as far as run.json tells.
    """

    run: str
    hosts: tuple[str, ...]
    backend: str | None
    on_cpu: bool
    emulated: bool
    world_size: int
    label: str
    reason: str
    steps: int
    compute: Time
    window: Time | None
    parameters: float | None
    zero: int
    operations: tuple[Operation, ...]
    step: StepComparison
    waiting: Time | None
    """For late ranks, beside the transfer."""
    remarks: tuple[str, ...] = ()

    @property
    def sequence(self) -> tuple[tuple[str, Size], ...]:
        """Kind and size of a step's gradient collectives in launch order: what most steps and ranks had."""
        steps: defaultdict[tuple[str, int], list[tuple[str, Size]]] = defaultdict(list)
        for one in self.operations:
            if one.gradient and one.size is not None:
                steps[one.source, one.step].append((one.kind, one.size))
        seen = Counter(tuple(step) for step in steps.values())
        return seen.most_common(1)[0][0] if seen else ()

    @property
    def ranks(self) -> int:
        """Over how many ranks gradients are reduced."""
        groups = Counter(one.ranks for one in self.operations if one.gradient and one.ranks is not None)
        return groups.most_common(1)[0][0] if groups else self.world_size

    @property
    def message(self) -> Size:
        """All gradients of a step, as they went over the wire."""
        return sum((size for _, size in self.sequence), Size(0.0))


def beside_transfers(operations: Sequence[Operation]) -> list[float]:
    """For each, the share of its transfer in which another collective of the same rank transferred too."""
    order = sorted(range(len(operations)), key=lambda index: operations[index].transfer[0])
    shares = [0.0] * len(operations)
    by_source: defaultdict[str, list[int]] = defaultdict(list)
    for index in order:
        by_source[operations[index].source].append(index)
    for indices in by_source.values():
        spans = [operations[index].transfer for index in indices]
        longest = max((end - start for start, end in spans), default=ZERO_TIME)
        for place, index in enumerate(indices):
            length = spans[place][1] - spans[place][0]
            if length > ZERO_TIME:
                shares[index] = _covered(spans, place, longest) / length
    return shares


def _covered(spans: Sequence[tuple[Time, Time]], place: int, longest: Time) -> Time:
    """How much of the span at `place` the others cover; spans are in the order of their starts, none longer than `longest`."""
    begin, end = spans[place]
    first = place
    while first > 0 and spans[first - 1][0] + longest > begin:
        first -= 1
    covered, reached = ZERO_TIME, begin
    for other in range(first, len(spans)):
        if spans[other][0] >= end:
            break
        if other != place:
            start = max(spans[other][0], reached)
            stop = min(spans[other][1], end)
            if stop > start:
                covered, reached = covered + (stop - start), stop
    return covered
