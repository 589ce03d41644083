"""The same gradients in other buckets: which share one, when it leaves, what it takes; as a change for the replay.

Which gradients share a bucket is DDP's rule (`replay.assignment`), when each was there was recorded, and what a bucket takes
is a line through the recorded transfers (`Link`). Causes price their fixes with it, and predictions are made of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

import numpy as np

from stepscope.audit.case import Case, RankStep
from stepscope.audit.causes.finding import in_step
from stepscope.audit.causes.rounds import Gradient, Round, reducing_rounds
from stepscope.audit.layout import layout_of, units_of
from stepscope.audit.ring import line_through
from stepscope.audit.schedule import Transfer
from stepscope.replay import reducer
from stepscope.replay.change import Change, Segment
from stepscope.replay.graph import StepGraph
from stepscope.replay.joined import Key
from stepscope.replay.network import NO_EVENT
from stepscope.replay.on_cpu import launching_thread
from stepscope.replay.recut import Bucket, Part, Recut
from stepscope.stats import median

Timing = Callable[[float], float]
"""How long a message of so many bytes has the link, in ns, if alone."""

_QUICK = 0.25
_ALONE = 0.95
"""A transfer that takes less than this share of its time on the link shared it."""
_OFTEN = 0.25
"""A size that is there less often than this share of the others' median says little."""


@dataclass(frozen=True, slots=True)
class Link:
    """What a transfer takes: latency in ns, and ns a byte."""

    latency: float
    per_byte: float

    def time(self, size: float) -> float:
        """Of one message; ns."""
        return self.latency + size * self.per_byte

    def slowed(self, rate: float) -> Link:
        """One on which everything takes `rate` times as long."""
        return Link(rate * self.latency, rate * self.per_byte)


def works(graph: StepGraph) -> dict[Key, float]:
    """For every collective of a step, its transfer in ns had it had the link alone, as the replay holds it."""
    network, by_number = graph.network, dict[int, float]()
    for point in np.flatnonzero(network.collective != NO_EVENT).tolist():
        number = int(network.collective[point])
        by_number[number] = max(by_number.get(number, 0.0), float(network.work[point]))
    return {key: by_number.get(number, 0.0) for key, number in graph.numbers.items()}


def link_of(case: Case) -> Link | None:
    """The line through the measured gradient transfers; without latency where their sizes are too much alike.

    Of each size the quickest quarter counts: whatever else ran on the machine only ever adds to a transfer. Where
    none had the link alone, all together tell the rate and none a latency: how much of it each of two had is an assumption.
    """
    alone: dict[int, list[float]] = {}
    shared: dict[int, list[float]] = {}
    for graph in case.graphs.values():
        work = works(graph)
        for one in in_step(case, graph):
            for op, _ in one.step.buckets:
                taken = work.get((one.index, op.row))
                if op.bytes and taken:
                    start, end = one.basis.wire_span(op)
                    kept = alone if taken >= _ALONE * (end - start) else shared
                    kept.setdefault(op.bytes, []).append(taken)
    if not alone:
        size = sum(size * len(times) for size, times in shared.items())
        return Link(0.0, sum(map(sum, shared.values())) / size) if size else None
    often = _OFTEN * median([len(times) for times in alone.values()])
    points = [
        (size, float(np.quantile(times, _QUICK)))
        for size, times in sorted(alone.items())
        if len(times) >= often
    ]
    return Link(*line_through(points))


@dataclass(frozen=True, slots=True)
class Cut:
    """One rank's backward in other buckets: places of its gradients in order of arrival, by bucket in launch order."""

    round: Round
    gradients: tuple[Gradient, ...]
    buckets: list[list[int]]
    bytes: list[int]

    @property
    def ready(self) -> list[int]:
        """When each bucket's last gradient is there; ns on the recording's clock."""
        return [max(self.gradients[place].time for place in bucket) for bucket in self.buckets]

    @property
    def launched(self) -> list[int]:
        """When the host launches each bucket: once it took in its last gradient, and in order."""
        last = [max(self.gradients[place].launch for place in bucket) for bucket in self.buckets]
        return list(accumulate(last, max))

    @property
    def carries(self) -> list[frozenset[Key]]:
        """The recorded collectives that each bucket's gradients were in, as these fill them in order of arrival."""
        full = list(accumulate(op.elements or 0 for op in self.round.ops))
        arrived = list(accumulate(gradient.elements for gradient in self.gradients))
        of = np.minimum(np.searchsorted(full, arrived), len(full) - 1).tolist()
        return [frozenset(self.round.keys[of[place]] for place in bucket) for bucket in self.buckets]


def cut(case: Case, round_: Round, caps: Sequence[float]) -> Cut:
    """A backward's gradients in buckets of some caps in bytes (the first bucket's, the others')."""
    layout = layout_of(round_, case.run)
    buckets = layout.buckets(caps)
    gradients = round_.gradients if round_.complete else units_of(round_)
    return Cut(round_, gradients, buckets, [layout.bytes_of(bucket) for bucket in buckets])


def remade(
    case: Case,
    graph: StepGraph,
    rounds: Sequence[Round],
    link: Link,
    caps: Sequence[float],
    calls: Sequence[Segment] = (),
) -> Change | None:
    """As `rebucketed`, over the recorded link as quick as it was in this step.

    calls: stretches of host threads that launch the recorded collectives, of which as many remain as there are buckets.
    """
    if not rounds:
        return None
    here = link.slowed(rate_of(rounds[0], works(graph), link.time))
    return rebucketed(case, graph, rounds, here.time, caps, calls)


def in_order_of_arrival(case: Case) -> Case:
    """The same case, whose gradients fill buckets as they arrive and not in the order that this run's DDP kept."""
    return replace(case, run=None)


def rebucketed(
    case: Case,
    graph: StepGraph,
    rounds: Sequence[Round],
    time: Timing,
    caps: Sequence[float],
    calls: Sequence[Segment] = (),
) -> Change | None:
    """A step with the gradients of some backwards, and of their like on the other ranks, in buckets of some caps in bytes.

    A message has the link for `time`. None where there are no such backwards, where the ranks' gradients do not make up the
    same buckets, or where a bucket would wait for what waits for it.
    """
    found = [_recut(case, graph, backward, time, caps) for backward in _backwards(case, graph, rounds)]
    cuts = tuple(one for one in found if one is not None)
    keep = _calls_left(cuts)
    change = Change(recut=cuts, segments=tuple(replace(call, keep=keep) for call in calls))
    return change if any(found) and graph.possible(change) else None


def _calls_left(cuts: Sequence[Recut]) -> float:
    """The buckets' share of the collectives that they replace, as many of both on every rank."""
    before = sum(len(one.replaced) for one in cuts)
    return (
        min(1.0, sum(len(bucket.parts) for one in cuts for bucket in one.buckets) / before) if before else 1.0
    )


def _backwards(case: Case, graph: StepGraph, rounds: Sequence[Round]) -> list[list[Round]]:
    """The same backward on every rank: those that reduce together with some rounds."""
    wanted = {graph.numbers[key] for round_ in rounds for key in round_.keys}
    together: dict[int, list[Round]] = {}
    for one in in_step(case, graph):
        for round_ in reducing_rounds(one):
            numbers = [graph.numbers[key] for key in round_.keys]
            if wanted.intersection(numbers):
                together.setdefault(min(numbers), []).append(round_)
    return list(together.values())


def _recut(
    case: Case, graph: StepGraph, backward: Sequence[Round], time: Timing, caps: Sequence[float]
) -> Recut | None:
    cuts = [cut(case, round_, caps) for round_ in backward]
    if any(one.bytes != cuts[0].bytes for one in cuts):
        return None
    parts = [_parts(case, one) for one in cuts]
    return Recut(
        replaced=frozenset(key for round_ in backward for key in round_.keys),
        buckets=tuple(
            Bucket(
                transfer=time(size),
                parts={one.round.index: part[k] for one, part in zip(cuts, parts, strict=True)},
                carries=frozenset(key for one in cuts for key in one.carries[k]),
            )
            for k, size in enumerate(cuts[0].bytes)
        ),
        lanes=case.recordings[backward[0].index].lanes,
    )


def rate_of(round_: Round, work: Mapping[Key, float], time: Timing) -> float:
    """How many times as long as modelled a backward's transfers took."""
    modelled = sum(time(op.bytes or 0) for op in round_.ops)
    return sum(work.get(key, 0.0) for key in round_.keys) / modelled if modelled else 1.0


def _parts(case: Case, one: Cut) -> list[Part]:
    if case.recordings[one.round.index].device == "cpu":
        ready = accumulate(one.ready, max)
        return [Part(time, None, need) for time, need in zip(ready, _needed(case, one), strict=True)]
    return [
        Part(launched, ready, one.round.end) for launched, ready in zip(one.launched, one.ready, strict=True)
    ]


def _needed(case: Case, one: Cut) -> list[int]:
    """When a rank's thread needs each bucket: where DDP copies its first gradient out, else once backward is over."""
    round_, recording = one.round, case.recordings[one.round.index]
    timeline = case.timelines[round_.index]
    last = round_.ops[-1]
    thread = launching_thread(timeline, last)
    after = max(round_.end, round_.ops[0].launch)
    if thread is None:
        return [after] * len(one.buckets)
    asked = [
        replace(last, elements=sum(one.gradients[place].elements for place in bucket))
        for bucket in one.buckets
    ]
    window = next(w for w in recording.steps.windows if w.number == last.step)
    found = reducer.needed_at(recording, timeline, window, thread, asked)
    return list(accumulate(found, lambda before, time: before if time is None else time, initial=after))[1:]


def together(changes: Sequence[Change]) -> Change | None:
    """Several changes as one; None of none."""
    if not changes:
        return None
    return Change(
        transfers={key: factor for change in changes for key, factor in change.transfers.items()},
        unwaited=frozenset(key for change in changes for key in change.unwaited),
        activities={key: factor for change in changes for key, factor in change.activities.items()},
        segments=tuple(segment for change in changes for segment in change.segments),
        launched={key: time for change in changes for key, time in change.launched.items()},
        recut=tuple(one for change in changes for one in change.recut),
    )


def choose(case: Case, pick: Callable[[RankStep], Round | None]) -> dict[int, list[Round]]:
    """By step, the rounds that a detector picks of the ranks; only those whose gradients are all known."""
    found: dict[int, list[Round]] = {}
    for one in case.rank_steps():
        round_ = pick(one)
        if round_ is not None and round_.complete and one.number in case.graphs:
            found.setdefault(one.number, []).append(round_)
    return found


def transfers_of(one: Cut, time: Timing) -> list[Transfer]:
    """A cut's buckets as transfers to schedule."""
    return [Transfer(ready, time(size)) for ready, size in zip(one.ready, one.bytes, strict=True)]
