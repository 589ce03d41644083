"""DeepSpeed's engine on two layers: ZeRO of the stage that --stage names."""

import argparse

import deepspeed
import torch
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--stage", type=int, default=2)
parser.add_argument("--accumulate", type=int, default=1)
args = parser.parse_args()
# It serves inference, and would be compiled now.
deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
deepspeed.init_distributed("gloo")
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 8))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
engine, *_ = deepspeed.initialize(
    model=model,
    optimizer=optimizer,
    config={
        "train_micro_batch_size_per_gpu": 32,
        "gradient_accumulation_steps": args.accumulate,
        "zero_optimization": {"stage": args.stage, "reduce_bucket_size": 5000},
        "zero_allow_untested_optimizer": True,
    },
)
for _step in range(12 * args.accumulate):
    inputs = torch.randn(32, 64)
    engine.backward(engine(inputs).square().mean())
    engine.step()
