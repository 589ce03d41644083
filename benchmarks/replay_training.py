"""A training script whose gradient reduction is off in every other step: what `replay_accuracy.py` records.

A stack of linear layers under DDP on gloo. In every other step the backward runs under `no_sync`: the same compute, none of
the reduction. Both kinds alternate, so that a load on the machine meets both; and a barrier follows every backward, so that
ranks wait for one another in both. Gradients are views of the buckets and keep their memory: no step copies any.
"""

from __future__ import annotations

import argparse
import contextlib

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--batch", type=int, default=1024)
    parser.add_argument("--bucket-cap-mb", type=float, default=0.75)
    parser.add_argument("--steps", type=int, default=60)
    args = parser.parse_args()
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    layers = [layer for _ in range(args.layers) for layer in (nn.Linear(args.width, args.width), nn.GELU())]
    model = DistributedDataParallel(
        nn.Sequential(*layers), bucket_cap_mb=args.bucket_cap_mb, gradient_as_bucket_view=True
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    inputs = torch.randn(args.batch, args.width)
    for step in range(args.steps):
        with model.no_sync() if step % 2 else contextlib.nullcontext():
            model(inputs).square().mean().backward()
        dist.barrier()
        optimizer.step()
        optimizer.zero_grad(set_to_none=False)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
