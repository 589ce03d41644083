"""What is broken on purpose, one class a fault: mistakes that real training scripts make, each in few lines.

`stepscope_workloads.faults` puts them into the training script. Two faults need no code here: a slow link is the
launcher's doing, and so is recording the first steps.
"""

from __future__ import annotations

import argparse
import dataclasses
import time
import typing

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from stepscope_workloads.flags import Flags
from stepscope_workloads.gpt import GPT

MIB = 1 << 20
FLOAT32 = 4
NEVER_FULL = 1e6
"""A bucket size in MiB that no model here reaches."""


class Fault:
    """What a fault may break; without overrides, nothing is broken."""

    def change_flags(self, args: Flags) -> None:
        """Set flags of the script."""

    def change_model(self, model: GPT, args: Flags) -> nn.Module:
        """Change the model, or put one around it, before DDP gets it."""
        return model

    def change_parallel(self, model: nn.Module) -> None:
        """Change the wrapped model."""

    def reduces(self, last: bool) -> bool:
        """Whether DDP reduces in a micro-batch; `last`: it is the step's last one."""
        return last

    def before_forward(self) -> None:
        """Run before each forward."""

    def before_backward(self, loss: Tensor) -> None:
        """Run between each forward and its backward."""

    def after_backward(self, model: nn.Module) -> None:
        """Run after the last backward of a step."""


@dataclasses.dataclass
class NoFault(Fault):
    """nothing broken: the clean twin"""


@dataclasses.dataclass
class OneBucket(Fault):
    """one bucket for all gradients, so that none is sent before all are there"""

    def change_flags(self, args: Flags) -> None:
        args.bucket_cap_mb = NEVER_FULL


@dataclasses.dataclass
class TinyBuckets(Fault):
    """buckets so small that latency takes the time, not bytes"""

    mb: float = 0.05

    def change_flags(self, args: Flags) -> None:
        args.bucket_cap_mb = self.mb


class ListedBackwards(nn.Module):
    """A model whose parameters are registered in the reverse of the order in which it uses them."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.listed = nn.ParameterList(reversed(list(model.parameters())))
        self.model = model

    def forward(self, tokens: Tensor, targets: Tensor) -> Tensor:
        """As the model."""
        return self.model(tokens, targets)  # type: ignore[no-any-return]  # Module.__call__ is untyped


@dataclasses.dataclass
class FindUnused(Fault):
    """find_unused_parameters, which keeps buckets in registration order, and that order is backwards"""

    def change_flags(self, args: Flags) -> None:
        args.find_unused_parameters = True

    def change_model(self, model: GPT, args: Flags) -> nn.Module:
        return ListedBackwards(model)


@dataclasses.dataclass
class SyncEveryMicroBatch(Fault):
    """gradient accumulation without no_sync; needs --accumulate 2 or more"""

    def change_flags(self, args: Flags) -> None:
        if args.accumulate < 2:
            raise argparse.ArgumentTypeError("sync-every-micro-batch needs --accumulate 2 or more")

    def reduces(self, last: bool) -> bool:
        return True


@dataclasses.dataclass
class ReduceByHand(Fault):
    """gradients reduced one by one in a loop after backward"""

    def reduces(self, last: bool) -> bool:
        return False

    def after_backward(self, model: nn.Module) -> None:
        for gradient in gradients_of(model):
            dist.all_reduce(gradient)
            gradient.div_(dist.get_world_size())


@dataclasses.dataclass
class ClipBeforeReduce(Fault):
    """gradients clipped by the norm over all ranks, then reduced in one piece, all of it after backward"""

    max_norm: float = 1.0

    def reduces(self, last: bool) -> bool:
        return False

    def after_backward(self, model: nn.Module) -> None:
        gradients = gradients_of(model)
        norm = nn.utils.get_total_norm(gradients)
        dist.all_reduce(norm, op=dist.ReduceOp.MAX)
        flat = nn.utils.parameters_to_vector(gradients) * (self.max_norm / norm.clamp(min=self.max_norm))
        dist.all_reduce(flat)
        nn.utils.vector_to_parameters(flat / dist.get_world_size(), gradients)


@dataclasses.dataclass
class WaitingHook(Fault):
    """a communication hook that waits for its own all-reduce, inside backward"""

    def change_parallel(self, model: nn.Module) -> None:
        ddp_of(model).register_comm_hook(None, lambda _, bucket: reduce_and_wait(bucket.buffer()))


def reduce_and_wait(buffer: Tensor) -> torch.futures.Future[Tensor]:
    """Average a bucket's gradients and come back when that is done."""
    work = dist.all_reduce(buffer.div_(dist.get_world_size()), async_op=True)
    assert work is not None
    work.wait()
    done: torch.futures.Future[Tensor] = torch.futures.Future()
    done.set_result(buffer)
    return done


@dataclasses.dataclass
class Straggler(Fault):
    """one rank loses time in phase forward, backward or input (before forward)"""

    rank: int = 1
    ms: float = 50.0
    phase: str = "backward"

    def __post_init__(self) -> None:
        if self.phase not in ("forward", "backward", "input"):
            raise argparse.ArgumentTypeError(f"phase is forward, backward or input, not {self.phase!r}")

    def change_model(self, model: GPT, args: Flags) -> nn.Module:
        middle = model.blocks[len(model.blocks) // 2]
        if self.phase == "forward":
            middle.register_forward_hook(lambda *_: self.lose_time())
        elif self.phase == "backward":
            middle.register_forward_hook(lambda *call: on_gradient(call[-1], self.lose_time))
        return model

    def before_forward(self) -> None:
        if self.phase == "input":
            self.lose_time()

    def lose_time(self) -> None:
        """Keep the processor busy on the one rank, with nothing a profiler records."""
        if dist.get_rank() == self.rank:
            until = time.perf_counter() + self.ms / 1e3
            while time.perf_counter() < until:
                pass


@dataclasses.dataclass
class Metrics(Fault):
    """small all-reduces that are waited for: before each backward, or within it, between the buckets"""

    count: int = 4
    within: bool = False

    def change_model(self, model: GPT, args: Flags) -> nn.Module:
        if self.within:
            for block in model.blocks:
                block.register_forward_hook(lambda *call: on_gradient(call[-1], self.reduce))
        return model

    def before_backward(self, loss: Tensor) -> None:
        if not self.within:
            self.reduce()

    def reduce(self) -> None:
        """Average some numbers that nobody needs now."""
        for _ in range(self.count):
            dist.all_reduce(torch.zeros(1))


@dataclasses.dataclass
class Buffers(Fault):
    """large buffers, which DDP broadcasts at each forward"""

    mb: float = 16.0

    def change_model(self, model: GPT, args: Flags) -> nn.Module:
        model.register_buffer("statistics", torch.zeros(int(self.mb * MIB / FLOAT32), device=args.device))
        return model


@dataclasses.dataclass
class LateParameter(Fault):
    """a parameter that is used last while DDP learns the order, and first ever after: it holds up the first bucket"""

    after: int = 3

    def change_model(self, model: GPT, args: Flags) -> nn.Module:
        shift = nn.Parameter(torch.zeros(args.config.embed, device=args.device))
        model.register_parameter("shift", shift)
        forwards = 0

        def at_the_start(_: nn.Module, inputs: tuple[Tensor, ...]) -> Tensor | None:
            nonlocal forwards
            forwards += 1
            return inputs[0] + shift if forwards > self.after else None

        def at_the_end(_: nn.Module, __: object, output: Tensor) -> Tensor | None:
            return output + shift if forwards <= self.after else None

        model.blocks[0].register_forward_pre_hook(at_the_start)
        model.norm.register_forward_hook(at_the_end)
        return model


@dataclasses.dataclass
class LargeEmbedding(Fault):
    """a table for far longer contexts than are trained on: its gradient is the last one, and cannot be split"""

    mb: float = 16.0

    def change_model(self, model: GPT, args: Flags) -> nn.Module:
        rows = int(self.mb * MIB / FLOAT32 / args.config.embed)
        model.position_embedding = nn.Embedding(rows, args.config.embed, device=args.device)
        return model


@dataclasses.dataclass
class Zero1(Fault):
    """ZeRO-1, whose optimizer broadcasts the parameters with nothing beside it"""

    def change_flags(self, args: Flags) -> None:
        args.zero = 1


FAULTS: dict[str, type[Fault]] = {
    "none": NoFault,
    "one-bucket": OneBucket,
    "tiny-buckets": TinyBuckets,
    "find-unused": FindUnused,
    "sync-every-micro-batch": SyncEveryMicroBatch,
    "reduce-by-hand": ReduceByHand,
    "clip-before-reduce": ClipBeforeReduce,
    "waiting-hook": WaitingHook,
    "straggler": Straggler,
    "metrics": Metrics,
    "buffers": Buffers,
    "late-parameter": LateParameter,
    "large-embedding": LargeEmbedding,
    "zero-1": Zero1,
}


def on_gradient(output: Tensor, act: typing.Callable[[], None]) -> None:
    """Act in backward, when the gradient of an output arrives."""
    if output.requires_grad:
        output.register_hook(lambda _: act())


def gradients_of(model: nn.Module) -> list[Tensor]:
    """All gradients, in the order of the parameters' registration."""
    return [parameter.grad for parameter in model.parameters() if parameter.grad is not None]


def ddp_of(model: nn.Module) -> DistributedDataParallel:
    """The wrapped model as what it is."""
    assert isinstance(model, DistributedDataParallel)
    return model
