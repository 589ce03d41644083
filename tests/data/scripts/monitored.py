"""A small DDP training script; asked to, it trains a second time from the same start with a monitor of its own."""

import argparse
import hashlib

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=24)
parser.add_argument("--again-into", help="where the monitor of the second training writes")
args = parser.parse_args()


def train() -> str:
    torch.manual_seed(0)
    model = DistributedDataParallel(
        nn.Sequential(nn.Linear(256, 256), nn.ReLU(), nn.Dropout(), nn.Linear(256, 256)), bucket_cap_mb=0.1
    )
    optimizer = torch.optim.AdamW(model.parameters())
    for _step in range(args.steps):
        model(torch.randn(32, 256)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    values = b"".join(parameter.detach().numpy().tobytes() for parameter in model.parameters())
    return hashlib.sha256(values).hexdigest()


dist.init_process_group("gloo")
digests = [train()]
if args.again_into:
    import stepscope

    with stepscope.monitor(every=10, out=args.again_into):
        digests.append(train())
if dist.get_rank() == 0:
    print("\n".join(digests))
dist.destroy_process_group()
