"""Two layers, each sharded by itself with settings of its own."""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard

dist.init_process_group("gloo")
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 4))
fully_shard(model[0])
fully_shard(model[1], reshard_after_forward=False)
fully_shard(model)
optimizer = torch.optim.AdamW(model.parameters())
for _step in range(6):
    model(torch.randn(4, 8)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
dist.destroy_process_group()
