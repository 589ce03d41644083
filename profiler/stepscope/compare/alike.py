"""In what two audits are not alike: said before their figures, since then a difference may be none of the job's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from stepscope.audit.result import Audit
from stepscope.compare.result import Side
from stepscope.compare.samples import counted
from stepscope.units import size

_FIELDS: dict[str, tuple[str, Callable[[Any], str]]] = {
    "world_size": ("world size", str),
    "ranks": ("recorded ranks", str),
    "backend": ("backend", str),
    "device": ("device", str),
    "device_name": ("device", str),
    "gradient_bytes": ("gradients of a step (another model, precision or accumulation)", size),
}

_RECORDED: dict[str, Callable[[dict[str, Any]], str | None]] = {
    "script": lambda run: run.get("script"),
    "torch": lambda run: (run.get("versions") or {}).get("torch"),
}
"""Out of run.json."""


def side_of(audit: Audit, name: str) -> Side:
    """What is said of an audit that is compared. name: where it came from, for people."""

    def first(field: str) -> str | None:
        return next((value for rank in audit.ranks if (value := getattr(rank, field))), None)

    sizes = [bucket.bytes for bucket in audit.buckets]
    worlds = [rank.world_size for rank in audit.ranks if rank.world_size is not None]
    return Side(
        name=name,
        label=audit.verdict.label + (", host-bound" if audit.verdict.host_bound else ""),
        reason=audit.verdict.reason,
        steps=len(counted(audit)),
        ranks=len(audit.ranks),
        world_size=max(worlds, default=None),
        backend=first("backend"),
        device=first("device"),
        device_name=first("device_name"),
        gradient_bytes=sum(size or 0 for size in sizes) if sizes and None not in sizes else None,
    )


def not_alike(a: Audit, b: Audit, side_a: Side, side_b: Side) -> list[str]:
    """One sentence for each thing that is known of both and differs, and for what they were judged by."""
    found = []
    for field, (noun, written) in _FIELDS.items():
        one, other = getattr(side_a, field), getattr(side_b, field)
        if one is not None and other is not None and one != other:
            found.append(f"not the same {noun}: {written(one)} and {written(other)}")
    for noun, recorded in _RECORDED.items():
        one, other = recorded(a.run or {}), recorded(b.run or {})
        if one is not None and other is not None and one != other:
            found.append(f"not the same {noun}: {one} and {other}")
    if a.verdict.thresholds != b.verdict.thresholds:
        found.append("not judged by the same thresholds: audit both traces again with the same ones")
    if {a.verdict.cost_replayed, b.verdict.cost_replayed} == {True, False}:
        found.append("the cost of communication is by replay on one side and an upper bound on the other")
    if a.stepscope != b.stepscope:
        found.append(f"audited by different versions of stepscope: {a.stepscope} and {b.stepscope}")
    for side in (side_a, side_b):
        if not side.steps:
            found.append(f"{side.name} has no step that counts: {side.reason}")
    return found
