"""Train a small GPT on text that it makes itself, data-parallel: DDP, ZeRO-1 or FSDP2.

Example: torchrun --standalone --nproc-per-node 2 train.py --bucket-cap-mb 8
"""

from __future__ import annotations

import contextlib
import os
import time
import typing
from collections.abc import Sequence

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel

if typing.TYPE_CHECKING or __package__:
    from .corpus import tokens
    from .flags import Flags, parse_flags
    from .gpt import GPT, parameter_count
else:  # started as a plain file: its own folder is on the path
    from corpus import tokens
    from flags import Flags, parse_flags
    from gpt import GPT, parameter_count


def main(argv: Sequence[str] | None = None) -> None:
    """Read the flags, join the other ranks, train, leave."""
    args = parse_flags(argv)
    start_process_group(args)
    train(args)
    dist.destroy_process_group()  # not after a failure: the other ranks may be waiting in a collective


def train(args: Flags) -> None:
    """Run the step loop; every rank of the process group calls it with the same arguments."""
    rank, world_size = dist.get_rank(), dist.get_world_size()
    data = tokens()
    torch.manual_seed(args.seed)  # the same initial weights on every rank, whatever the stage
    plain_model = GPT(args.config).to(args.device)
    size = parameter_count(plain_model)
    model = parallelise(plain_model, args)
    optimizer = make_optimizer(model, args)
    torch.manual_seed(args.seed + rank)  # from here on, dropout differs between ranks
    log(f"{size / 1e6:.1f} M parameters, {world_size} rank(s), {dist.get_backend()} on {args.device.type}")

    model.train()
    started, steps_timed = time.perf_counter(), 0
    for step in range(1, args.steps + 1):
        loss = accumulate_gradients(model, data, step, args)
        if args.clip_grad_norm is not None:
            nn.utils.clip_grad_norm_(model.parameters(), args.clip_grad_norm)
        optimizer.step()
        optimizer.zero_grad()

        steps_timed += 1
        if step in (1, args.steps) or step % args.log_every == 0:
            # The ranks average the loss only here, so that the other steps carry gradient traffic alone.
            dist.all_reduce(loss)
            mean = loss.item() / world_size
            ms = 1e3 * (time.perf_counter() - started) / steps_timed
            log(f"step {step:4d}/{args.steps}  loss {mean:.5f}  {ms:.0f} ms/step")
            started, steps_timed = time.perf_counter(), 0


def accumulate_gradients(model: nn.Module, data: Tensor, step: int, args: Flags) -> Tensor:
    """Run forward and backward of a step's micro-batches; return this rank's mean loss, a scalar."""
    total = torch.zeros((), device=args.device)
    for micro in range(args.accumulate):
        inputs, targets = next_batch(data, step, micro, args)
        # Forward too: DDP decides there whether the coming backward will reduce.
        with gradient_sync(model, last=micro == args.accumulate - 1):
            with torch.autocast(args.device.type, torch.bfloat16, enabled=args.autocast):
                loss = model(inputs, targets) / args.accumulate
            loss.backward()
        total += loss.detach()
    return total


def next_batch(data: Tensor, step: int, micro: int, args: Flags) -> tuple[Tensor, Tensor]:
    """Return this rank's inputs and targets, each (batch, block), for one micro-batch.

    Every rank draws the places of the whole global batch and takes its own part, so a step trains on the
    same text however it is divided between ranks and micro-batches.
    """
    source = torch.Generator().manual_seed(args.seed * 1_000_003 + step)
    block = args.config.block_size
    shape = (args.accumulate, dist.get_world_size(), args.batch_size, 1)
    places = torch.randint(len(data) - block, shape, generator=source)[micro, dist.get_rank()]
    windows = data[places + torch.arange(block + 1)]
    if args.device.type == "cuda":
        windows = windows.pin_memory().to(args.device, non_blocking=True)
    return windows[:, :-1], windows[:, 1:]


def gradient_sync(model: nn.Module, last: bool) -> contextlib.AbstractContextManager[None]:
    """Reduce gradients in the last micro-batch of a step only."""
    if isinstance(model, DistributedDataParallel):
        return contextlib.nullcontext() if last else model.no_sync()
    assert isinstance(model, FSDPModule)
    model.set_requires_gradient_sync(last)
    model.set_is_last_backward(last)
    return contextlib.nullcontext()


def parallelise(model: GPT, args: Flags) -> nn.Module:
    """Wrap the model for the chosen ZeRO stage: DDP for 0 and 1, FSDP2 for 2 and 3."""
    if args.zero < 2:
        if args.compile:
            model.compile()
        return DistributedDataParallel(
            model,
            device_ids=[args.device] if args.device.type == "cuda" else None,
            bucket_cap_mb=args.bucket_cap_mb,
            gradient_as_bucket_view=args.gradient_as_bucket_view,
            find_unused_parameters=args.find_unused_parameters,
            static_graph=args.static_graph,
        )
    mesh = init_device_mesh(args.device.type, (dist.get_world_size(),))
    precision = MixedPrecisionPolicy()
    if args.dtype == "bfloat16":
        precision = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for block in model.blocks:
        if args.compile:
            block.compile()
        fully_shard(block, mesh=mesh, reshard_after_forward=args.zero == 3, mp_policy=precision)
    # The rest (embeddings, head) keeps its weights in both stages: backward starts with them.
    fully_shard(model, mesh=mesh, mp_policy=precision)
    return model


def make_optimizer(model: nn.Module, args: Flags) -> torch.optim.Optimizer:
    """AdamW; in stage 1 each rank keeps the state of its share of the parameters and broadcasts them."""
    if args.zero == 1:
        return ZeroRedundancyOptimizer(model.parameters(), torch.optim.AdamW, lr=args.lr)
    return torch.optim.AdamW(model.parameters(), lr=args.lr)


def start_process_group(args: Flags) -> None:
    """Join the ranks that torchrun started; without torchrun, be the only one."""
    device_id = None
    if args.device.type == "cuda":
        torch.cuda.set_device(args.device)
        device_id = args.device
    if "RANK" in os.environ:
        dist.init_process_group(args.backend, device_id=device_id)
    else:
        alone = dist.HashStore()  # type: ignore[attr-defined]  # torch documents it, its stubs do not list it
        dist.init_process_group(args.backend, store=alone, rank=0, world_size=1, device_id=device_id)


def log(line: str) -> None:
    """Print on rank 0."""
    if dist.get_rank() == 0:
        print(line, flush=True)


if __name__ == "__main__":
    main()
