"""What if the same gradients had been reduced in other buckets: who is ready when, for how long on the wire.

The replay moves the measured collectives to where the other buckets' transfers would be. All schedules here have the
link to one transfer at a time: with two that share it, as gloo has them, the last one ends at the same moment.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, groupby

import numpy as np

from stepscope.audit.case import Case, Price, RankStep
from stepscope.audit.causes.finding import in_step
from stepscope.audit.causes.rounds import Gradient, Round
from stepscope.audit.ring import line_through
from stepscope.audit.schedule import Transfer
from stepscope.replay.change import Change
from stepscope.replay.graph import StepGraph
from stepscope.replay.joined import Key
from stepscope.replay.network import NO_EVENT

CAPS_MIB = (1, 2, 5, 10, 25, 50, 100)
"""What `bucket_cap_mb` is tried at: the usual settings, DDP's default of 25 among them."""
MIB = 1 << 20
_MOST_OF_IT = 0.9
_QUICK = 0.25


@dataclass(frozen=True, slots=True)
class Link:
    """What a transfer takes: latency in ns, and ns a byte."""

    latency: float
    per_byte: float

    def time(self, size: float) -> float:
        """Of one message; ns."""
        return self.latency + size * self.per_byte


def works(graph: StepGraph) -> dict[Key, float]:
    """For every collective of a step, its transfer in ns had it had the link alone, as the replay holds it."""
    network, by_number = graph.network, dict[int, float]()
    for point in np.flatnonzero(network.collective != NO_EVENT).tolist():
        number = int(network.collective[point])
        by_number[number] = max(by_number.get(number, 0.0), float(network.work[point]))
    return {key: by_number.get(number, 0.0) for key, number in graph.numbers.items()}


def link_of(case: Case) -> Link | None:
    """The line through the measured gradient transfers; without latency where their sizes are too much alike.

    Of each size the quickest quarter counts: whatever else ran on the machine only ever adds to a transfer.
    """
    by_size: dict[int, list[float]] = {}
    for graph in case.graphs.values():
        work = works(graph)
        for one in in_step(case, graph):
            for op, _ in one.step.buckets:
                if op.bytes and work.get((one.index, op.row)):
                    by_size.setdefault(op.bytes, []).append(work[one.index, op.row])
    points = [(size, float(np.quantile(times, _QUICK))) for size, times in sorted(by_size.items())]
    if not points:
        return None
    return Link(*line_through(points))


def filled(gradients: Sequence[Gradient], cap: float, element_size: int) -> list[tuple[int, int]]:
    """Buckets in order of arrival as (ready, bytes): one is closed once it holds the cap or more, as DDP does it."""
    buckets: list[tuple[int, int]] = []
    size = 0
    for gradient in gradients:
        size += gradient.elements * element_size
        if size >= cap or gradient is gradients[-1]:
            buckets.append((gradient.time, size))
            size = 0
    return buckets


def pieces(round_: Round, work: Mapping[Key, float], link: Link, cap: float) -> list[Transfer]:
    """The transfers of a round's gradients in buckets of a cap in bytes, at the rate at which they were measured."""
    modelled = sum(link.time(op.bytes or 0) for op in round_.ops)
    rate = sum(work.get(key, 0.0) for key in round_.keys) / modelled if modelled else 1.0
    return [
        Transfer(ready, rate * link.time(size))
        for ready, size in filled(round_.gradients, cap, round_.element_size)
    ]


def end_of(schedule: Sequence[Transfer]) -> float:
    """When the last transfer is over, one after the other; ns."""
    return _slots(schedule)[-1][1]


def relaunched(round_: Round, work: Mapping[Key, float], schedule: Sequence[Transfer]) -> Change:
    """The measured collectives where another schedule has the link busy, the same share of the bytes at each time.

    Each is launched so long before its share is through that it is over just then, and never later than it was: what
    came after it may have waited for it.
    """
    before = [work.get(key, 0.0) for key in round_.keys]
    total = sum(transfer.wire for transfer in schedule)
    factor = total / sum(before) if sum(before) else 1.0
    slots, done = _slots(schedule), list(accumulate(transfer.wire for transfer in schedule))
    launched: dict[Key, int] = {}
    for op, key, wire, through in zip(round_.ops, round_.keys, before, accumulate(before), strict=True):
        place = min(int(np.searchsorted(done, through * factor - 1.0)), len(done) - 1)
        over = slots[place][1] - (done[place] - through * factor)
        launched[key] = min(round(over - wire * factor), op.launch if op.stream is None else op.start)
    return Change(launched=launched, transfers=dict.fromkeys(round_.keys, factor))


def _slots(schedule: Sequence[Transfer]) -> list[tuple[float, float]]:
    slots: list[tuple[float, float]] = []
    for transfer in schedule:
        start = max(float(transfer.ready), slots[-1][1] if slots else float("-inf"))
        slots.append((start, start + transfer.wire))
    return slots


def merged(round_: Round, work: Mapping[Key, float], link: Link, cap: float) -> Change:
    """Neighbouring buckets as one, up to a cap in bytes: the group's last carries it all, and latency is paid once."""
    factors: dict[Key, float] = {}
    sizes = list(accumulate(op.bytes or 0 for op in round_.ops))
    share = [work.get(key, 0.0) for key in round_.keys]
    ops = range(len(round_.ops))
    for _, group in groupby(ops, key=lambda k: int((sizes[k] - (round_.ops[k].bytes or 0)) // cap)):
        members = list(group)
        whole = sum(share[k] for k in members)
        modelled = sum(link.time(round_.ops[k].bytes or 0) for k in members)
        together = link.time(sum(round_.ops[k].bytes or 0 for k in members))
        for k in members[:-1]:
            factors[round_.keys[k]] = 0.0
        last = members[-1]
        factors[round_.keys[last]] = whole * together / modelled / share[last] if share[last] else 1.0
    return Change(transfers=factors, unwaited=frozenset(key for key, factor in factors.items() if not factor))


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
    )


def choose(case: Case, pick: Callable[[RankStep], Round | None]) -> dict[int, list[Round]]:
    """By step, the rounds that a detector picks of the ranks; only those whose gradients are all known."""
    found: dict[int, list[Round]] = {}
    for one in case.rank_steps():
        round_ = pick(one)
        if round_ is not None and round_.complete and one.number in case.graphs:
            found.setdefault(one.number, []).append(round_)
    return found


def best_cap(case: Case, chosen: Mapping[int, Sequence[Round]], link: Link) -> int | None:
    """The largest `bucket_cap_mb` that brings most of what any brings, by the schedules' ends; None where none does."""
    gains = dict.fromkeys(CAPS_MIB, 0.0)
    for number, rounds in chosen.items():
        work = works(case.graphs[number])
        for round_ in rounds:
            over = max(op.end for op in round_.ops)
            for cap in CAPS_MIB:
                gains[cap] += max(0.0, over - end_of(pieces(round_, work, link, cap * MIB)))
    best = max(gains.values())
    return max(cap for cap, gain in gains.items() if gain >= _MOST_OF_IT * best) if best > 0 else None


def rebucketed(graph: StepGraph, rounds: Sequence[Round], link: Link, cap: float) -> Change | None:
    """A step with some rounds' gradients in buckets of a cap in bytes, in order of arrival."""
    work = works(graph)
    return together([relaunched(round_, work, pieces(round_, work, link, cap)) for round_ in rounds])


@dataclass(frozen=True, slots=True)
class Recut:
    """The best cap for some rounds of gradients, and what it would bring."""

    example: Round
    cap: int
    """MiB."""
    price: Price | None


def recut(case: Case, wanted: Callable[[RankStep], Round | None]) -> Recut | None:
    """The rounds that `wanted` picks, cut by the best cap; None where there are none or no cap is better."""
    chosen = choose(case, wanted)
    link = link_of(case) if chosen else None
    cap = best_cap(case, chosen, link) if link is not None else None
    if link is None or cap is None:
        return None
    price = case.price(lambda graph: rebucketed(graph, chosen.get(graph.step, []), link, cap * MIB))
    return Recut(next(iter(chosen.values()))[0], cap, price)
