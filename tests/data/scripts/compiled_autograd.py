"""Compiled autograd: forward, backward and DDP's all-reduces in compiled graphs."""

import torch
import torch._dynamo
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
torch.manual_seed(0)
torch._dynamo.config.compiled_autograd = True
torch._dynamo.config.optimize_ddp = "python_reducer"
layers = [nn.Sequential(nn.Linear(512, 512), nn.ReLU()) for _ in range(4)]
model = DistributedDataParallel(nn.Sequential(*layers), bucket_cap_mb=1)
optimizer = torch.optim.AdamW(model.parameters())


@torch.compile
def backward(batch):
    model(batch).square().mean().backward()


for _step in range(12):
    backward(torch.randn(32, 512))
    optimizer.step()
    optimizer.zero_grad()
dist.destroy_process_group()
