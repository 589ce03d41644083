"""DDP on data that differs by rank and step, accumulated over two micro-batches and clipped; says each step's true norms.

usage: noisy_gradients.py STEPS FOLDER
"""

import copy
import json
import sys
from contextlib import nullcontext
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def squared(gradients):
    return float(sum(gradient.double().square().sum() for gradient in gradients))


def update(optimizer):
    nn.utils.clip_grad_norm_(optimizer.param_groups[0]["params"], 1e-3)
    optimizer.step()


dist.init_process_group("gloo")
rank, ranks = dist.get_rank(), dist.get_world_size()
steps, folder = int(sys.argv[1]), Path(sys.argv[2])
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1))
twin = copy.deepcopy(model)
wrapped = DistributedDataParallel(model, gradient_as_bucket_view=True)
optimizer, by_hand = (torch.optim.SGD(one.parameters(), lr=0.01) for one in (model, twin))
told = []
for step in range(steps):
    seeds = [[97 * step + 7 * k + micro for micro in (0, 1)] for k in range(ranks)]
    batches = [[torch.randn(4, 8, generator=torch.Generator().manual_seed(s)) for s in two] for two in seeds]
    losses = [sum(twin(batch).square().mean() for batch in of_rank) for of_rank in batches]
    own = [torch.autograd.grad(loss, list(twin.parameters())) for loss in losses]
    reduced = [sum(parts) / ranks for parts in zip(*own, strict=True)]
    told.append((squared(own[rank]), squared(reduced)))
    for parameter, gradient in zip(twin.parameters(), reduced, strict=True):
        parameter.grad = gradient
    update(by_hand)
    optimizer.zero_grad()
    for micro, batch in enumerate(batches[rank]):
        with wrapped.no_sync() if micro == 0 else nullcontext():
            wrapped(batch).square().mean().backward()
    update(optimizer)
same = all(torch.allclose(one, two) for one, two in zip(model.parameters(), twin.parameters(), strict=True))
(folder / f"true{rank}.json").write_text(json.dumps({"norms": told, "trained_alike": same}))
dist.destroy_process_group()
