"""Collectives one by one, and the buckets they make up over the steps."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from stepscope.audit import result
from stepscope.audit.basis import Basis
from stepscope.audit.overlap import Hidden
from stepscope.audit.schedule import Ready
from stepscope.audit.step import MeasuredStep
from stepscope.stats import median
from stepscope.trace.recording import NO_TIME, CollectiveOp
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
    """One bucket in one step of one rank; times in ns from the start of backward compute."""

    op: CollectiveOp
    ready: Ready | None
    origin: int
    hidden: Hidden


def bucket_table(parts: Iterable[tuple[Basis, Sequence[MeasuredStep]]]) -> list[result.Bucket]:
    """The buckets in launch order, each over all valid steps of all ranks: medians."""
    seen: dict[int, list[_Seen]] = defaultdict(list)
    for basis, steps in parts:
        for step in steps:
            if step.window.number in basis.invalid:
                continue
            for k, (op, ready) in enumerate(step.buckets):
                seen[k].append(_Seen(op, ready, step.backward_start, basis.hidden_of[op.row]))
    return [_row(k, seen[k]) for k in sorted(seen)]


def _row(number: int, seen: Sequence[_Seen]) -> result.Bucket:
    ready = [s.ready.time - s.origin for s in seen if s.ready]
    parameters = {s.ready.parameters for s in seen if s.ready and s.ready.exact}
    launched = [s.op.launch - s.origin for s in seen if s.op.launch != NO_TIME]
    duration = sum(s.op.end - s.op.start for s in seen)
    sizes = [s.op.bytes for s in seen if s.op.bytes is not None]
    return result.Bucket(
        bucket=number,
        bytes=int(median(sizes)) if sizes else None,
        parameters=parameters.pop() if len(parameters) == 1 else None,
        steps=len(seen),
        ready_ms=ns_to_ms(median(ready)) if ready else None,
        launch_ms=ns_to_ms(median(launched)) if launched else None,
        start_ms=ns_to_ms(median([s.op.start - s.origin for s in seen])),
        duration_ms=ns_to_ms(median([s.op.end - s.op.start for s in seen])),
        hidden_share=sum(s.hidden.by_backward for s in seen) / duration if duration else 0.0,
        exposed_ms=ns_to_ms(median([s.hidden.exposed for s in seen])),
    )
