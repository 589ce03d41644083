"""One of several kinds of training loops: `--kind in-backward`, `scaler`, `compiled`, `fsdp2` or `context`."""

import argparse

import torch
import torch.distributed as dist
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--kind", required=True)
parser.add_argument("--steps", type=int, default=12)
args = parser.parse_args()
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 4))


def train(step_once):
    for step in range(args.steps):
        step_once(step)


def in_backward():
    """One optimizer a parameter, each stepped as soon as its gradient is there."""
    optimizers = {parameter: torch.optim.SGD([parameter], lr=0.1) for parameter in model.parameters()}

    def update(parameter):
        optimizers[parameter].step()
        optimizers[parameter].zero_grad()

    for parameter in model.parameters():
        parameter.register_post_accumulate_grad_hook(update)
    train(lambda step: model(torch.randn(4, 8)).sum().backward())


def scaler():
    """A GradScaler that meets infinities at step 5."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0)

    def once(step):
        loss = model(torch.randn(4, 8)).sum() * (float("inf") if step == 5 else 1.0)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()

    train(once)


def compiled():
    """An optimizer step inside a compiled function."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    @torch.compile(backend="eager")
    def update():
        optimizer.step()

    def once(step):
        model(torch.randn(4, 8)).sum().backward()
        update()
        optimizer.zero_grad()

    train(once)


def fsdp2():
    """Two sharded layers below a sharded root."""
    from torch.distributed.fsdp import fully_shard

    dist.init_process_group("gloo")
    fully_shard(model[0], reshard_after_forward=False)
    fully_shard(model)
    optimizer = torch.optim.AdamW(model.parameters())

    def once(step):
        model(torch.randn(4, 8)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()

    train(once)
    dist.destroy_process_group()


{"in-backward": in_backward, "scaler": scaler, "compiled": compiled, "fsdp2": fsdp2}[args.kind]()
