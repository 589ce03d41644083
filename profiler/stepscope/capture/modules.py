"""The DDP and FSDP modules of a script, with their settings and buckets as they say them themselves."""

from __future__ import annotations

import functools
import gc
import sys
import weakref
from collections.abc import Callable, Iterable
from typing import Any

import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from stepscope.capture.metadata import DdpModule, FsdpModule, Parameter


class ModuleWatch:
    """Remembers, without keeping them alive, the DDP modules that a script makes, and reads their settings once.

    The FSDP2 units are in torch's own weak registry. A DDP module made before `install` is found among the live objects.
    """

    def __init__(self) -> None:
        self.ddp: list[DdpModule] = []
        self.fsdp: list[FsdpModule] = []
        self._seen: weakref.WeakSet[DistributedDataParallel] = weakref.WeakSet()
        self._undo: Callable[[], None] | None = None

    def install(self) -> None:
        """Begin to watch."""
        original = DistributedDataParallel.__init__

        @functools.wraps(original)
        def replacement(ddp: DistributedDataParallel, /, *args: Any, **kwargs: Any) -> None:
            original(ddp, *args, **kwargs)  # one of the keywords may be `module`
            self._seen.add(ddp)

        def undo() -> None:
            DistributedDataParallel.__init__ = original  # type: ignore[method-assign]

        DistributedDataParallel.__init__ = replacement  # type: ignore[assignment]
        self._undo = undo

    def remove(self) -> None:
        """Leave torch as it was found."""
        if self._undo is not None:
            self._undo()
            self._undo = None

    def read(self) -> None:
        """Read the settings of the modules that are alive now."""
        modules = list(self._seen) or [
            o for o in gc.get_objects() if issubclass(type(o), DistributedDataParallel)
        ]
        self.ddp = [_ddp(module) for module in modules]
        self.fsdp = list(_fsdp2())


def _ddp(module: DistributedDataParallel) -> DdpModule:
    data: dict[str, Any] = module._get_ddp_logging_data()
    reduced = [
        (name, parameter)
        for name, parameter in module.module.named_parameters()
        if parameter.requires_grad and name not in module.parameters_to_ignore
    ]
    ready = _integers(data.get("prev_iteration_grad_ready_order_indices", ""))
    order = ready if sorted(ready) == list(range(len(reduced))) else list(range(len(reduced)))
    return DdpModule(
        module=type(module.module).__name__,
        bucket_cap_bytes=int(data["bucket_cap_bytes"]),
        bucket_caps_bytes=_caps(module, int(data["bucket_cap_bytes"])),
        find_unused_parameters=bool(data["find_unused_parameters"]),
        static_graph=bool(data.get("static_graph", 0)),
        gradient_as_bucket_view=bool(data["gradient_as_bucket_view"]),
        broadcast_buffers=bool(data["broadcast_buffers"]),
        comm_hook=data.get("comm_hook") or None,
        initial_bucket_bytes=_integers(data.get("bucket_sizes", "")),
        rebuilt=bool(data.get("has_rebuilt_buckets", 0)),
        rebuilt_bucket_bytes=_integers(data.get("rebuilt_bucket_sizes", "")),
        rebuilt_bucket_parameters=[
            _integers(bucket)
            for bucket in data.get("rebuilt_per_bucket_param_indices", "").split(",")
            if bucket.strip()
        ],
        parameters=[
            Parameter(index=i, name=reduced[i][0], numel=reduced[i][1].numel(), dtype=_dtype(reduced[i][1]))
            for i in order
        ],
        in_ready_order=order is ready,
    )


def _caps(module: DistributedDataParallel, cap: int) -> list[int]:
    """A list of the script's own; else the cap, and before it the first bucket's where that is DDP's default."""
    listed = getattr(module, "bucket_bytes_cap_list", None)
    if listed:
        return list(listed)
    distributed: Any = dist  # its stubs do not export the name
    first = [distributed._DEFAULT_FIRST_BUCKET_BYTES]
    return [*(first if getattr(module, "bucket_bytes_cap_default", True) else []), cap]


def _fsdp2() -> Iterable[FsdpModule]:
    """One entry for each module that fully_shard was called on and that has parameters of its own group."""
    composable = sys.modules.get("torch.distributed._composable_state")
    if composable is None:
        return
    for module in list(composable._module_state_mapping):
        group = getattr(composable._get_module_state(module), "_fsdp_param_group", None)
        if group is None:
            continue
        mesh = group.post_forward_mesh_info
        whole = mesh is group.mesh_info
        yield FsdpModule(
            module=group._module_fqn or type(module).__name__,
            numel=sum(param._orig_size.numel() for param in group.fsdp_params),
            reshard_after_forward=False if mesh is None else True if whole else mesh.shard_mesh_size,
        )


def _integers(text: str) -> list[int]:
    return [int(word) for word in text.replace(",", " ").split()]


def _dtype(tensor: nn.Parameter) -> str:
    return str(tensor.dtype).removeprefix("torch.")
