"""A rank that knows by itself which one it is, as a script under srun does, and records itself; says nothing to torchrun."""

import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import stepscope

rank, size, store, run_dir = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4]
dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=size)
model = DistributedDataParallel(nn.Linear(8, 8))
optimizer = torch.optim.AdamW(model.parameters())
with stepscope.record(run_dir, warmup=2, steps=2):
    for _step in range(6):
        model(torch.randn(4, 8)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    if rank == 1:
        time.sleep(1)  # others end before it
dist.destroy_process_group()
