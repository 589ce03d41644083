"""Norms of a rank's own gradient and of the reduced one, in steps after all else is measured: what the noise scale is made of."""

from __future__ import annotations

import gc
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim.optimizer import register_optimizer_step_post_hook

NORM_STEPS = 30
"""Steps that are looked at: the noise scale is a ratio of two averages, and settles slowly."""
_MOST_STEPS = 2 * NORM_STEPS
"""Of optimizers: another model's may step in every turn too, and a script may never reduce all gradients at once."""


class GradientNorms:
    """Takes the squared norms of DDP's gradients before and after their reduction, in `NORM_STEPS` optimizer steps.

    It only reads: hooks on the parameters run before DDP's own, a callback at the end of backward runs after it, and the script's
    communication hook, clipping and unscaling come later or are left alone. `on_done` is called once it has seen enough.
    samples: of each step (own, reduced); problem: why there are none, or fewer.
    """

    def __init__(self, on_done: Callable[[], None]) -> None:
        self.problem: str | None = (
            "the script ended before its gradients could be looked at; let it make more steps"
        )
        self._on_done = on_done
        self._taken: list[tuple[torch.Tensor, torch.Tensor]] = []
        self._own: dict[int, torch.Tensor] = {}
        self._parameters: list[nn.Parameter] = []
        self._undo: list[Callable[[], None]] = []
        self._steps = 0
        self._reduced_since_step = False

    @property
    def samples(self) -> list[tuple[float, float]]:
        """What was taken so far; reading it waits for the device."""
        return [(float(own), float(reduced)) for own, reduced in self._taken]

    def start(self) -> None:
        """Begin at the end of an optimizer step; where the gradients can't be told apart, say why and look at none."""
        modules = [one for one in gc.get_objects() if issubclass(type(one), DistributedDataParallel)]
        self.problem = _why_not(modules)
        if self.problem is not None:
            self._on_done()
            return
        module = modules[0]
        self._parameters = [
            parameter
            for name, parameter in module.module.named_parameters()
            if parameter.requires_grad and name not in module.parameters_to_ignore
        ]
        for parameter in self._parameters:
            hook = parameter.register_post_accumulate_grad_hook(partial(self._accumulated, module))
            self._undo.append(hook.remove)
        self._undo.append(register_optimizer_step_post_hook(self._stepped).remove)
        self.problem = "no step reduced all gradients at once; the norms need every parameter in every step"

    def remove(self) -> None:
        """Leave torch as it was found."""
        for undo in self._undo:
            undo()
        self._undo.clear()

    def _accumulated(self, module: DistributedDataParallel, parameter: torch.Tensor) -> None:
        """A parameter's gradient is whole on this rank: of all micro-batches, in the one that is reduced."""
        if not module.require_backward_grad_sync or parameter.grad is None or parameter.grad.is_sparse:
            return
        if not self._own:
            _at_the_end_of_backward(partial(_at_the_end_of_backward, self._backward_over))
        self._own[id(parameter)] = _squared(parameter.grad)

    def _backward_over(self) -> None:
        """DDP's reduction is over: this was put behind it."""
        own, self._own = self._own, {}
        # Reduced twice without a step between, a gradient holds an already reduced part: it is no rank's own.
        if len(own) == len(self._parameters) and not self._reduced_since_step:
            reduced = [_squared(one.grad) for one in self._parameters if one.grad is not None]
            self._taken.append((torch.stack([*own.values()]).sum(), torch.stack(reduced).sum()))
            self.problem = None
        self._reduced_since_step = True

    def _stepped(self, *_: Any) -> None:
        self._reduced_since_step = False
        self._steps += 1
        if len(self._taken) == NORM_STEPS or self._steps == _MOST_STEPS:
            self.remove()
            self._on_done()


def _at_the_end_of_backward(callback: Callable[[], None]) -> None:
    engine: Any = torch.autograd.Variable._execution_engine  # what torch's own FSDP puts its callbacks into
    engine.queue_callback(callback)


def _squared(gradient: torch.Tensor) -> torch.Tensor:
    norm: torch.Tensor = torch.linalg.vector_norm(
        gradient.detach(), dtype=torch.promote_types(gradient.dtype, torch.float32)
    )
    return norm.square().double()


def _why_not(modules: list[DistributedDataParallel]) -> str | None:
    """Why a rank's own gradient is not to be had, or is not what is averaged."""
    if not modules:
        return "the script made no DistributedDataParallel module: where gradients are sharded no rank has its own whole"
    if len(modules) > 1:
        return f"the script has {len(modules)} DistributedDataParallel modules; the noise scale is that of one model"
    (module,) = modules
    hook = module._get_ddp_logging_data().get("comm_hook")
    if hook:
        return f"the script's communication hook {hook} may change what is averaged"
    parameters = list(module.module.parameters())
    if any(type(one.data) is not torch.Tensor or one.device != parameters[0].device for one in parameters):
        return "the parameters are spread over devices"
    if dist.get_world_size(module.process_group) != dist.get_world_size():
        return "the gradients are averaged over a part of the ranks only"
    return None
