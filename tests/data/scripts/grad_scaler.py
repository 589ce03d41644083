"""Mixed precision with a GradScaler that leaves out the seventh step, whose loss overflows."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
torch.manual_seed(0)
model = DistributedDataParallel(nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 8)))
optimizer = torch.optim.AdamW(model.parameters())
scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
for step in range(12):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = model(torch.randn(16, 64)).square().mean() * (float("inf") if step == 7 else 1.0)
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad()
dist.destroy_process_group()
