"""FullyShardedDataParallel (FSDP1), each block a unit of its own."""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel
from torch.distributed.fsdp.wrap import ModuleWrapPolicy

dist.init_process_group("gloo")
torch.manual_seed(0)
blocks = [nn.Sequential(nn.Linear(64, 64), nn.ReLU()) for _ in range(3)]
model = FullyShardedDataParallel(
    nn.Sequential(*blocks, nn.Linear(64, 8)),
    auto_wrap_policy=ModuleWrapPolicy({nn.Sequential}),
    device_id=torch.device("cpu"),
)
optimizer = torch.optim.AdamW(model.parameters())
for _step in range(10):
    model(torch.randn(16, 64)).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
dist.destroy_process_group()
