"""Where optimizers step, seen through torch's own hooks: each outermost optimizer step is told once, after it has ended."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch.autograd.profiler import record_function
from torch.optim.optimizer import (
    Optimizer,
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)

IN_BACKWARD = 0
"""The key that stands for all optimizers which step inside backward, one parameter each."""


class StepHooks:
    """Calls `on_step(key)` after each outermost optimizer step; the same optimizer has the same key, counted from 1.

    An optimizer that steps another one (ZeroRedundancyOptimizer) is one step. Optimizers that step inside backward are told
    once a backward, under the key IN_BACKWARD. A step that GradScaler leaves out is told too, with `skipped=True`: it had its
    forward, backward and communication. Install it, and remove it when no longer needed; both may be done at any time.
    """

    def __init__(self, on_step: Callable[[int, bool], None]) -> None:
        self.names: dict[int, str] = {}
        self._on_step = on_step
        self._keys: weakref.WeakKeyDictionary[Optimizer, int] = weakref.WeakKeyDictionary()
        self._open: list[Optimizer] = []
        self._ended: Optimizer | None = None
        self._steps_told = 0
        self._first_backward: int | None = None
        self._stepped_in_backward = False
        self._undo: list[Callable[[], object]] = []

    def install(self) -> None:
        """Begin to listen."""
        self._undo.append(register_optimizer_step_pre_hook(self._before).remove)
        self._undo.append(register_optimizer_step_post_hook(self._after).remove)
        self._replace(record_function, "__enter__", self._entering_annotation)
        self._replace(record_function, "__exit__", self._leaving_annotation)
        self._replace(torch.amp.GradScaler, "step", self._scaled_step)

    def remove(self) -> None:
        """Leave torch as it was found."""
        for undo in reversed(self._undo):
            undo()
        self._undo.clear()

    def _replace(self, owner: Any, name: str, wrapper: Callable[..., Any]) -> None:
        original = getattr(owner, name)

        @functools.wraps(original)
        def replacement(*args: Any, **kwargs: Any) -> Any:
            return wrapper(original, *args, **kwargs)

        setattr(owner, name, replacement)
        self._undo.append(lambda: setattr(owner, name, original))

    def _before(self, optimizer: Optimizer, _args: Any, _kwargs: Any) -> None:
        self._close(optimizer)  # still open only if its last step raised
        self._open.append(optimizer)

    def _after(self, optimizer: Optimizer, _args: Any, _kwargs: Any) -> None:
        self._close(optimizer)
        if not self._open:
            self._ended = optimizer

    def _close(self, optimizer: Optimizer) -> None:
        for depth, open_optimizer in enumerate(self._open):
            if open_optimizer is optimizer:
                del self._open[depth:]
                return

    def _leaving_annotation(self, leave: Callable[..., Any], *args: Any) -> Any:
        """A step is told when its `Optimizer.step#` annotation has ended, so that no step window cuts one in two."""
        result = leave(*args)
        self._tell_ended()
        return result

    def _entering_annotation(self, enter: Callable[..., Any], *args: Any) -> Any:
        """An optimizer step that was compiled has lost its annotation; the next one, of zero_grad or DDP's forward, is soon."""
        self._tell_ended()
        return enter(*args)

    def _tell_ended(self) -> None:
        if self._ended is not None:
            optimizer, self._ended = self._ended, None
            self._tell(optimizer, skipped=False)

    def _scaled_step(
        self, step: Callable[..., Any], scaler: Any, optimizer: Optimizer, *args: Any, **kwargs: Any
    ) -> Any:
        told = self._steps_told
        result = step(scaler, optimizer, *args, **kwargs)
        if scaler.is_enabled() and self._steps_told == told:
            self._tell(optimizer, skipped=True)
        return result

    def _tell(self, optimizer: Optimizer, *, skipped: bool) -> None:
        if _is_capturing_a_graph():
            return
        self._steps_told += 1
        task = torch._C._current_graph_task_id()
        if task != -1:
            self._tell_in_backward(optimizer, task)
        else:
            self._on_step(self._key(optimizer), skipped)

    def _tell_in_backward(self, optimizer: Optimizer, task: int) -> None:
        """The profiler can be switched only between backwards, so the first step of all, told at once, is cut short."""
        if self._first_backward is None:
            self._first_backward = task
            self.names[IN_BACKWARD] = f"{type(optimizer).__name__} in backward"
            self._replace(torch.autograd, "backward", self._backward)
            self._on_step(IN_BACKWARD, False)
        self._stepped_in_backward = task != self._first_backward

    def _backward(self, backward: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        result = backward(*args, **kwargs)
        if self._stepped_in_backward:
            self._stepped_in_backward = False
            self._on_step(IN_BACKWARD, False)
        return result

    def _key(self, optimizer: Optimizer) -> int:
        if optimizer not in self._keys:
            key = self._keys[optimizer] = len(self.names) + (IN_BACKWARD not in self.names)
            self.names[key] = type(optimizer).__name__
        return self._keys[optimizer]


def _is_capturing_a_graph() -> bool:
    """A step that is only captured into a CUDA graph does not run."""
    return torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing()
