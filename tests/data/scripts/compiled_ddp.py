"""A compiled DDP model; --whole-graph turns the DDPOptimizer off, which cuts the graph where buckets end."""

import argparse

import torch
import torch._dynamo
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

parser = argparse.ArgumentParser()
parser.add_argument("--whole-graph", action="store_true")
args = parser.parse_args()

dist.init_process_group("gloo")
torch.manual_seed(0)
torch._dynamo.config.optimize_ddp = not args.whole_graph
layers = [nn.Sequential(nn.Linear(512, 512), nn.ReLU()) for _ in range(4)]
ddp = DistributedDataParallel(nn.Sequential(*layers), bucket_cap_mb=1)
model = torch.compile(ddp)
optimizer = torch.optim.AdamW(ddp.parameters())
for _step in range(12):
    model(torch.randn(32, 512)).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
dist.destroy_process_group()
