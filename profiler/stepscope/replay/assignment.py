"""DDP's own rule of which parameters share a bucket (torch/csrc/distributed/c10d/reducer.cpp, compute_bucket_assignment_by_size).

A bucket is closed once it holds its cap or more, so a parameter is never split and a bucket may be larger than the cap. Types and
devices do not mix: each has an open bucket and caps of its own. A sparse gradient is a bucket by itself.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

FIRST_BUCKET_BYTES = 1 << 20
"""The first bucket's cap where the script leaves `bucket_cap_mb` to DDP (`torch.distributed._DEFAULT_FIRST_BUCKET_BYTES`)."""
DEFAULT_BYTES = 25 << 20
"""DDP's cap where the script names none."""
MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class Tensor:
    """One gradient as the rule sees it: its size, and what it must share with others of its bucket (type and device)."""

    bytes: int
    kind: Hashable = ""
    sparse: bool = False


def ready_order(tensors: Sequence[Tensor], caps: Sequence[float]) -> list[list[int]]:
    """The buckets after DDP has rebuilt them, in launch order: places of `tensors`, which are in the order they were ready.

    caps: in bytes; the first is the first bucket's, the last holds for all further ones.
    """
    closed, left = _fill(tensors, caps)
    # What stays open is appended as the reducer's hash map gives it: the kind that was met last comes first.
    return closed + [bucket for bucket in reversed(left) if bucket]


def registration_order(tensors: Sequence[Tensor], caps: Sequence[float]) -> list[list[int]]:
    """The buckets before a rebuild, and where DDP never rebuilds, in launch order: `tensors` in the order of registration."""
    closed, left = _fill(tensors, caps)
    return sorted(closed + [bucket for bucket in left if bucket], key=min, reverse=True)


def _fill(tensors: Sequence[Tensor], caps: Sequence[float]) -> tuple[list[list[int]], list[list[int]]]:
    """The closed buckets in the order in which they were closed, and the open one of each kind in the order of the kinds."""
    closed: list[list[int]] = []
    open_: dict[Hashable, list[int]] = {}
    held: dict[Hashable, int] = {}
    cap: dict[Hashable, int] = {}
    for place, tensor in enumerate(tensors):
        if tensor.sparse:
            closed.append([place])
            continue
        kind = tensor.kind
        open_.setdefault(kind, []).append(place)
        held[kind] = held.get(kind, 0) + tensor.bytes
        if held[kind] >= caps[cap.get(kind, 0)]:
            closed.append(open_[kind])
            open_[kind], held[kind] = [], 0
            cap[kind] = min(cap.get(kind, 0) + 1, len(caps) - 1)
    return closed, list(open_.values())
