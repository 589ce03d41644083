"""DDP with a bucket cap of its own; dies where it gets another one that is as large as --dies-at."""

import argparse

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

parser = argparse.ArgumentParser()
parser.add_argument("--dies-at", type=float, metavar="MIB")
parser.add_argument("--no-ddp", action="store_true")
args = parser.parse_args()

dist.init_process_group("gloo")
torch.manual_seed(0)
model = nn.Sequential(*(nn.Linear(256, 256) for _ in range(4)))
if not args.no_ddp:
    model = DistributedDataParallel(model, bucket_cap_mb=0.5)
    if args.dies_at is not None and model.bucket_bytes_cap >= args.dies_at * 2**20:
        raise MemoryError("no room for such buckets")
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
while True:
    model(torch.randn(32, 256)).square().mean().backward()
    if args.no_ddp:
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad)
    optimizer.step()
    optimizer.zero_grad()
