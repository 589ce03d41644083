"""How DDP would fill its buckets from the gradients of a recorded backward: their sizes, types and order.

run.json names DDP's parameters, with their types and the order that DDP goes by. Without it, or where it does not fit the
gradients that were recorded, the order is that of their arrival and the type that of the reductions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from stepscope.audit.causes.rounds import Gradient, Round
from stepscope.replay.assignment import Tensor, ready_order, registration_order

_BYTES = {"float64": 8, "float32": 4, "float16": 2, "bfloat16": 2, "complex64": 8, "complex128": 16}


@dataclass(frozen=True, slots=True)
class Layout:
    """The gradients of one backward as DDP's rule takes them, in the rule's order.

    places: of each in the order of arrival. wire: its bytes as they are reduced. rebuilt: whether DDP goes by the order of
    arrival, or for good by the order of registration.
    """

    tensors: tuple[Tensor, ...]
    places: tuple[int, ...]
    wire: tuple[int, ...]
    rebuilt: bool = True

    def buckets(self, caps: Sequence[float]) -> list[list[int]]:
        """Buckets of the caps (bytes: the first one's and that of the others), in launch order: places in order of arrival."""
        rule = ready_order if self.rebuilt else registration_order
        return [[self.places[k] for k in bucket] for bucket in rule(self.tensors, caps)]

    def bytes_of(self, bucket: Sequence[int]) -> int:
        """What a bucket, given by places in order of arrival, has on the wire."""
        wire = dict(zip(self.places, self.wire, strict=True))
        return sum(wire[place] for place in bucket)


def layout_of(round_: Round, run: Mapping[str, Any] | None) -> Layout:
    """The layout of a backward whose gradients are known; without gradients, its recorded buckets are what is laid out."""
    gradients = round_.gradients if round_.complete else units_of(round_)
    return _as_recorded(gradients, round_, run or {}) or _as_arrived(gradients, round_.element_size)


def caps_of(run: Mapping[str, Any] | None) -> list[float] | None:
    """What the run's DDP fills its buckets up to, in bytes and launch order; the last holds for all further ones.

    None where the run has not one DDP module.
    """
    modules = (run or {}).get("ddp", [])
    if len(modules) != 1:
        return None
    return list(modules[0].get("bucket_caps_bytes") or [modules[0]["bucket_cap_bytes"]])


def units_of(round_: Round) -> tuple[Gradient, ...]:
    """The recorded buckets of a backward, each taken for one gradient: they may be merged, not split."""
    return tuple(Gradient(round_.sent(op), op.launch, op.elements or 0) for op in round_.ops)


def _as_arrived(gradients: Sequence[Gradient], size: int) -> Layout:
    wire = tuple(gradient.elements * size for gradient in gradients)
    return Layout(tuple(map(Tensor, wire)), tuple(range(len(gradients))), wire)


def _as_recorded(gradients: Sequence[Gradient], round_: Round, run: Mapping[str, Any]) -> Layout | None:
    """By DDP's own account of its parameters, if there is one and the gradients are those."""
    modules = run.get("ddp", [])
    if len(modules) != 1 or not modules[0]["in_ready_order"]:
        return None
    module, parameters = modules[0], modules[0]["parameters"]
    if [gradient.elements for gradient in gradients] != [parameter["numel"] for parameter in parameters]:
        return None
    arrived = {parameter["index"]: place for place, parameter in enumerate(parameters)}
    order = _order(module, [parameter["index"] for parameter in parameters])
    if sorted(order) != sorted(arrived):
        return None
    places = tuple(arrived[index] for index in order)
    types = [parameters[place]["dtype"] for place in places]
    sizes = [parameters[place]["numel"] for place in places]
    if not set(types) <= set(_BYTES):
        return None
    mixed = len({op.dtype for op in round_.ops}) > 1
    return Layout(
        tuple(Tensor(size * _BYTES[kind], kind) for size, kind in zip(sizes, types, strict=True)),
        places,
        tuple(
            size * (_BYTES[kind] if mixed else round_.element_size)
            for size, kind in zip(sizes, types, strict=True)
        ),
        rebuilt=_rebuilds(module),
    )


def _rebuilds(module: Mapping[str, Any]) -> bool:
    return bool(module["rebuilt"] or module["static_graph"] or not module["find_unused_parameters"])


def _order(module: Mapping[str, Any], ready: Sequence[int]) -> list[int]:
    """Parameter indices in the order that DDP fills buckets by: of first arrival once it has rebuilt, else of registration."""
    if not _rebuilds(module):
        return sorted(ready)
    rebuilt = [index for bucket in module["rebuilt_bucket_parameters"] for index in bucket]
    one_type = len({parameter["dtype"] for parameter in module["parameters"]}) == 1
    return rebuilt if rebuilt and one_type else list(ready)
