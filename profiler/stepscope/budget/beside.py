"""The model beside a recorded run: each size of collective, and a step as a whole."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from statistics import median, quantiles

from stepscope.budget.calibrated import PASSES, TOLERANCE, Model
from stepscope.budget.quantities import ZERO_TIME, Size, Time
from stepscope.budget.recorded import Operation, Recorded, beside_transfers
from stepscope.budget.result import Comparison, SizeComparison, StepComparison
from stepscope.units import milliseconds, percent, plural, size

NOTABLE = 0.10
"""Share of a transfer's time from which what ran beside it is named."""

Kind = tuple[str, Size, int]
"""Collective, size and ranks."""


def compare(recorded: Recorded, model: Model | None) -> Comparison:
    """The recorded gradient collectives beside the model's times for them. Without a model, the measured side alone."""
    shares = beside_transfers(recorded.operations)
    groups: defaultdict[Kind, list[tuple[Operation, float]]] = defaultdict(list)
    for one, share in zip(recorded.operations, shares, strict=True):
        if one.gradient and one.size is not None:
            groups[one.kind, one.size, one.ranks or recorded.ranks].append((one, share))
    counts = Counter(recorded.sequence)
    usual = [kind for kind in groups if counts[kind[:2]]]
    sizes = tuple(_size(recorded, kind, counts[kind[:2]], groups[kind], model) for kind in usual)
    step = step_by_model(recorded, model)
    return Comparison(
        run=recorded.run,
        label=recorded.label,
        reason=recorded.reason,
        steps=recorded.steps,
        model=None if model is None else model.name,
        step=step,
        sizes=sizes,
        remarks=(*_left_out(groups, usual, sizes, model), *_in_words(recorded, step, sizes)),
    )


def _left_out(
    groups: dict[Kind, list[tuple[Operation, float]]],
    usual: Sequence[Kind],
    sizes: Sequence[SizeComparison],
    model: Model | None,
) -> Iterator[str]:
    rare = sum(len(rows) for kind, rows in groups.items() if kind not in usual)
    if rare:
        yield f"Left out: {plural(rare, 'collective')} of sizes that most steps do not have."
    unknown = sorted({row.collective for row in sizes if row.collective not in PASSES})
    if unknown and model is not None:
        yield f"The model has no time for {', '.join(unknown)}."


def _size(
    recorded: Recorded, kind: Kind, count: int, rows: Sequence[tuple[Operation, float]], model: Model | None
) -> SizeComparison:
    name, message, ranks = kind
    wires = [one.wire.base for one, _ in rows if one.wire is not None]
    times = wires or [one.duration.base for one, _ in rows]
    low, _, high = quantiles(times, method="inclusive") if len(times) > 1 else times * 3
    terms = None if model is None or name not in PASSES or ranks < 2 else model.terms(name)
    predicted = None if terms is None else terms.time(name, ranks, message)
    measured = Time(median(times))
    row = SizeComparison(
        collective=name,
        size=message,
        ranks=ranks,
        count=count,
        samples=len(times),
        measured=measured,
        measured_low=Time(low),
        measured_high=Time(high),
        waiting_included=not wires,
        beside_transfers=sum(share for _, share in rows) / len(rows),
        beside_backward=_beside_backward([one for one, _ in rows]),
        model=predicted,
        difference=predicted / measured - 1 if predicted is not None and measured > ZERO_TIME else None,
        in_valid_range=terms.holds(message) if terms is not None and terms.valid is not None else None,
        remarks=(),
    )
    valid = None if terms is None else terms.valid
    return replace(row, remarks=tuple(_where_they_part(recorded, row, valid)))


def _beside_backward(rows: Iterable[Operation]) -> float | None:
    shares = [
        one.beside_backward / one.duration
        for one in rows
        if one.beside_backward is not None and one.duration > ZERO_TIME
    ]
    return sum(shares) / len(shares) if shares else None


def _where_they_part(
    recorded: Recorded, row: SizeComparison, valid: tuple[Size, Size] | None
) -> Iterator[str]:
    """What the recording says of a difference of more than `TOLERANCE`; what it does not say is not guessed."""
    if row.difference is None or abs(row.difference) <= TOLERANCE:
        return
    told = False
    if row.in_valid_range is False and valid is not None:
        side = "below" if row.size < valid[0] else "above"
        told = True
        yield f"{side} the range in which the fit holds ({size(valid[0].bytes)} to {size(valid[1].bytes)})"
    if row.difference < 0:
        reasons = [*_what_slows(recorded, row)]
        told = told or bool(reasons)
        yield from reasons
    if not told:
        side = "slower" if row.difference < 0 else "faster"
        yield f"{side} than the model, and the recording does not tell why"


def _what_slows(recorded: Recorded, row: SizeComparison) -> Iterator[str]:
    if row.waiting_included:
        yield "the time holds waiting for other ranks, for their sides of it were not recorded"
    if row.beside_transfers > NOTABLE:
        lanes = (
            ": gloo has two lanes, and they share the link"
            if recorded.on_cpu
            else ", and they share the link"
        )
        yield f"another transfer ran beside it for {percent(row.beside_transfers)} of its time{lanes}"
    if row.beside_backward is not None and row.beside_backward > NOTABLE:
        what = "the same cores" if recorded.on_cpu else "the same device"
        yield f"{percent(row.beside_backward)} of it ran beside backward compute, which contends for {what}"


def step_by_model(recorded: Recorded, model: Model | None) -> StepComparison:
    """A step's gradient communication as measured, with the model's where it has a time for every collective."""
    made = recorded.step
    sequence, ranks = recorded.sequence, recorded.ranks
    if model is None or recorded.window is None or not sequence or ranks < 2:
        return made
    if any(kind not in PASSES for kind, _ in sequence):
        return made
    times = [model.terms(kind).time(kind, ranks, bucket) for kind, bucket in sequence]
    total = sum(times, ZERO_TIME)
    sticks_out = exposed_in_order([bucket for _, bucket in sequence], times, recorded.window)
    return replace(
        made,
        model_communication=total,
        model_hidden=max(total - sticks_out, ZERO_TIME),
        model_exposed=sticks_out,
        difference=total / made.communication - 1 if made.communication > ZERO_TIME else None,
    )


def exposed_in_order(buckets: Sequence[Size], times: Sequence[Time], window: Time) -> Time:
    """What sticks out of backward if gradients become ready at an even pace and each transfer follows the one before."""
    whole = sum(buckets, Size(0.0))
    ready, end = Size(0.0), ZERO_TIME
    for bucket, time in zip(buckets, times, strict=True):
        ready += bucket
        end = max(end, window * (ready / whole)) + time
    return max(end - window, ZERO_TIME)


def _in_words(recorded: Recorded, step: StepComparison, sizes: Sequence[SizeComparison]) -> Iterator[str]:
    """What the reader of a step's figures has to know beside them."""
    waiting = recorded.waiting
    if step.waiting_included:
        yield "The measured times hold waiting for other ranks, whose sides were not recorded."
    elif waiting is not None and waiting > step.communication * NOTABLE:
        yield f"Another {milliseconds(waiting.ms)} a step were waiting for a late rank, which no model of a link has."
    if any(row.beside_transfers > NOTABLE for row in sizes):
        yield (
            "Transfers ran beside each other, and each took longer than alone: compare a step's communication, in which two at "
            "once count once."
        )
    if any(row.collective == "reduce_scatter" for row in sizes):
        yield "Gradients alone are compared: all-gathers of parameters run beside them on the same link."
