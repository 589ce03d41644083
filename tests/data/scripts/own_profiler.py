"""Profiles itself with torch.profiler, as its author would: three steps by default, or all of them with --throughout."""

import argparse
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.profiler import profile, schedule

parser = argparse.ArgumentParser()
parser.add_argument("folder", type=Path)
parser.add_argument("--throughout", action="store_true")
args = parser.parse_args()

dist.init_process_group("gloo")
torch.manual_seed(0)
model = DistributedDataParallel(nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 8)))
optimizer = torch.optim.AdamW(model.parameters())


def save(profiler):
    profiler.export_chrome_trace(str(args.folder / f"rank{dist.get_rank()}.own.pt.trace.json"))


plan = schedule(wait=1, warmup=1, active=22 if args.throughout else 3, repeat=1)
with profile(schedule=plan, on_trace_ready=save, record_shapes=True) as profiler:
    for _step in range(24):
        model(torch.randn(16, 64)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        profiler.step()
dist.destroy_process_group()
