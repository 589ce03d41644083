"""ZeRO-1: an optimizer that steps another one, a learning rate schedule, two micro-batches a step."""

import contextlib

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
torch.manual_seed(0)
model = DistributedDataParallel(nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 4)))
optimizer = ZeroRedundancyOptimizer(model.parameters(), optimizer_class=torch.optim.AdamW, lr=1e-3)
schedule = torch.optim.lr_scheduler.LinearLR(optimizer)
for _step in range(10):
    for last in (False, True):
        with contextlib.nullcontext() if last else model.no_sync():
            model(torch.randn(4, 8)).sum().backward()
    optimizer.step()
    schedule.step()
    optimizer.zero_grad()
dist.destroy_process_group()
