"""Uses torch.profiler itself, from step `--first` for `--length` steps; writes what it found."""

import argparse

import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile

parser = argparse.ArgumentParser()
parser.add_argument("--first", type=int, required=True)
parser.add_argument("--length", type=int, required=True)
parser.add_argument("--steps", type=int, default=16)
args = parser.parse_args()

model = nn.Linear(8, 8)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
own = profile(activities=[ProfilerActivity.CPU])
for step in range(args.steps):
    if step == args.first:
        own.start()
    model(torch.randn(4, 8)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    if step == args.first + args.length - 1:
        own.stop()
steps = sum(event.name == "Optimizer.step#SGD.step" for event in own.events())
print(f"the script's own profiler saw {steps} optimizer steps")
