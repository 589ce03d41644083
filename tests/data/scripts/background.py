"""Starts a process in a session of its own, which outlives it, says so, and trains on."""

import subprocess
import sys

import torch
from torch import nn

subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1000)"], start_new_session=True)
model = nn.Linear(4, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
print("in the background", flush=True)
while True:
    model(torch.randn(2, 4)).sum().backward()
    optimizer.step()
