"""A small DDP training script, as a user would write it; says at the end what DDP knows of itself."""

import argparse
import json

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=14)
parser.add_argument("--width", type=int, default=256)
parser.add_argument("--bucket-cap-mb", type=float, default=0.5)
args = parser.parse_args()

dist.init_process_group("gloo")
torch.manual_seed(0)
model = nn.Sequential(*(nn.Sequential(nn.Linear(args.width, args.width), nn.ReLU()) for _ in range(4)))
ddp = DistributedDataParallel(model, bucket_cap_mb=args.bucket_cap_mb)
optimizer = torch.optim.AdamW(ddp.parameters())
for _step in range(args.steps):
    loss = ddp(torch.randn(32, args.width)).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
if dist.get_rank() == 0:
    print(json.dumps(ddp._get_ddp_logging_data()))
dist.destroy_process_group()
