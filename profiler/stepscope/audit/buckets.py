"""Collectives one by one, and the buckets they make up over the steps."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from stepscope.audit import result
from stepscope.audit.basis import Basis
from stepscope.audit.bucket_figures import Reduced, StepKey, figures
from stepscope.audit.overlap import Hidden
from stepscope.audit.schedule import Ready
from stepscope.audit.step import MeasuredStep
from stepscope.intervals import Intervals
from stepscope.stats import group_means, median
from stepscope.trace.recording import NO_TIME, CollectiveOp, Phase
from stepscope.trace.steps import NO_STEP
from stepscope.units import ns_to_ms


def collective_rows(basis: Basis) -> list[result.Collective]:
    """Every collective of one rank, in the order in which they ran."""
    recording, phases = basis.recording, len(basis.unions.backward) > 0
    return [
        result.Collective(
            rank=recording.header.rank,
            source=recording.source,
            step=op.step if op.step != NO_STEP else None,
            kind=op.kind,
            phase=op.phase.name.lower(),
            gradient=op.gradient,
            role=op.role,
            bytes=op.bytes,
            dtype=op.dtype.name if op.dtype else None,
            group=op.group,
            group_size=op.group_size,
            seq=op.sequence,
            stream=op.stream,
            name=op.name,
            ready_ms=_maybe_ms(_time(basis.ready_of.get(op.row))),
            launch_ms=_maybe_ms(op.launch if op.launch != NO_TIME else None),
            start_ms=ns_to_ms(op.start),
            duration_ms=ns_to_ms(op.end - op.start),
            **_wait_and_wire(basis, op),
            hidden_backward_ms=ns_to_ms(basis.hidden_of[op.row].by_backward) if phases else None,
            exposed_ms=ns_to_ms(basis.hidden_of[op.row].exposed),
        )
        for op in recording.collectives
    ]


def _wait_and_wire(basis: Basis, op: CollectiveOp) -> dict[str, float]:
    """Waiting, transfer and bus bandwidth of a collective that was laid beside the other ranks'; else nothing."""
    wire = basis.wire_of.get(op.row)
    if wire is None:
        return {}
    found = {"wait_ms": ns_to_ms(op.end - op.start - wire), "wire_ms": ns_to_ms(wire)}
    ranks = op.group_size or basis.recording.header.world_size
    if op.bytes is not None and ranks is not None and wire > 0:
        found["bus_gb_per_s"] = op.bytes / wire * bus_factor(op.kind, ranks)
    return found


def bus_factor(kind: str, ranks: int) -> float:
    """Bytes on the busiest link over the message size, as nccl-tests defines bus bandwidth (METRICS section 3)."""
    if kind == "all_reduce":
        return 2 * (ranks - 1) / ranks
    return (ranks - 1) / ranks if kind in ("reduce_scatter", "all_gather", "all_to_all") else 1.0


def _time(ready: Ready | None) -> int | None:
    return ready.time if ready else None


def _maybe_ms(nanoseconds: int | None) -> float | None:
    return None if nanoseconds is None else ns_to_ms(nanoseconds)


@dataclass(frozen=True, slots=True)
class _Seen:
    """One bucket in one pass of one rank; origin: the start of its pass's backward compute, in ns."""

    step: StepKey
    op: CollectiveOp
    ready: Ready | None
    origin: int
    hidden: Hidden


def bucket_table(parts: Iterable[tuple[Basis, Sequence[MeasuredStep]]]) -> list[result.Bucket]:
    """The buckets in launch order: of each valid step the mean over its ranks and backward passes, of the steps the median."""
    seen: dict[int, list[_Seen]] = defaultdict(list)
    passes: dict[int, list[int]] = defaultdict(list)
    recordings: Counter[int | None] = Counter()
    for basis, steps in parts:
        rank = basis.recording.header.rank
        recording = recordings[rank]
        recordings[rank] += rank is not None
        for step in steps:
            if step.window.number in basis.invalid:
                continue
            count: Counter[int] = Counter()
            for origin, buckets in _passes(basis, step):
                for k, (op, ready) in enumerate(buckets):
                    key = recording, step.window.number
                    seen[k].append(_Seen(key, op, ready, origin, basis.hidden_of[op.row]))
                    count[k] += 1
            for k, times in count.items():
                passes[k].append(times)
    return [_row(k, seen[k], passes[k]) for k in sorted(seen)]


def _passes(
    basis: Basis, step: MeasuredStep
) -> list[tuple[int, Sequence[tuple[CollectiveOp, Ready | None]]]]:
    """A step's backward passes that reduced the same buckets, each from its first compute in ns; else all as one."""
    starts = _pass_starts(
        basis.unions.phase(step.window.number, Phase.FORWARD),
        basis.unions.phase(step.window.number, Phase.BACKWARD),
    )
    found: dict[int, list[tuple[CollectiveOp, Ready | None]]] = defaultdict(list)
    for op, ready in step.buckets:
        found[bisect_right(starts, op.start) - 1].append((op, ready))
    if len(found) > 1 and len({tuple(op.bytes for op, _ in buckets) for buckets in found.values()}) == 1:
        return [(starts[max(number, 0)], buckets) for number, buckets in sorted(found.items())]
    return [(step.backward_start, step.buckets)]


def _pass_starts(forward: Intervals, backward: Intervals) -> list[int]:
    """When each backward pass first computed: forward's compute between two tells them apart."""
    before = np.searchsorted(forward[:, 0], backward[:, 0])
    first = np.diff(before, prepend=-1) > 0
    starts: list[int] = backward[first, 0].tolist()
    return starts


def _row(number: int, seen: Sequence[_Seen], passes: Sequence[int]) -> result.Bucket:
    parameters = {s.ready.parameters for s in seen if s.ready and s.ready.exact}
    sizes = [s.op.bytes for s in seen if s.op.bytes is not None]
    of_steps = figures(
        [Reduced(s.step, s.op.end - s.op.start, s.hidden.exposed, s.hidden.by_backward) for s in seen]
    )
    start = _typical((s, s.op.start) for s in seen)
    assert start is not None  # a bucket was seen
    return result.Bucket(
        bucket=number,
        bytes=int(median(sizes)) if sizes else None,
        parameters=parameters.pop() if len(parameters) == 1 else None,
        steps=len(passes),
        passes=int(median(passes)),
        ready_ms=_typical((s, s.ready.time) for s in seen if s.ready),
        launch_ms=_typical((s, s.op.launch) for s in seen if s.op.launch != NO_TIME),
        start_ms=start,
        duration_ms=ns_to_ms(median(of_steps.duration)),
        hidden_share=median(of_steps.hidden_share) if of_steps.hidden_share else 0.0,
        exposed_ms=ns_to_ms(median(of_steps.exposed)),
    )


def _typical(times: Iterable[tuple[_Seen, int]]) -> float | None:
    """When something happened, in ms from the start of its pass; None where it was never seen."""
    means = group_means((s.step, time - s.origin) for s, time in times)
    return ns_to_ms(median(means)) if means else None
