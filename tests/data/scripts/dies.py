"""Rank 1 dies at a given step, in a given way; rank 0 loses its peer."""

import argparse
import os
import signal
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

parser = argparse.ArgumentParser()
parser.add_argument("--at", type=int, default=3)
parser.add_argument("--how", choices=["raise", "exit", "kill"], default="raise")
args = parser.parse_args()

dist.init_process_group("gloo")
torch.manual_seed(0)
model = DistributedDataParallel(nn.Linear(8, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(12):
    if step == args.at and dist.get_rank() == 1:
        if args.how == "raise":
            raise RuntimeError("out of luck")
        if args.how == "exit":
            sys.exit(7)
        os.kill(os.getpid(), signal.SIGKILL)
    model(torch.randn(4, 8)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
