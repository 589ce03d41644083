"""Two models with an optimizer each, trained in turn: a GAN."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.functional import binary_cross_entropy_with_logits as loss_of
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
torch.manual_seed(0)
generator = DistributedDataParallel(nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 32)))
critic = DistributedDataParallel(
    nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 1)), broadcast_buffers=False
)
generator_optimizer = torch.optim.Adam(generator.parameters(), lr=2e-4)
critic_optimizer = torch.optim.RMSprop(critic.parameters(), lr=1e-4)
real, fake = torch.ones(16, 1), torch.zeros(16, 1)
for _step in range(12):
    sample = generator(torch.randn(16, 16))
    critic_optimizer.zero_grad()
    loss_of(critic(torch.cat([torch.randn(16, 32), sample.detach()])), torch.cat([real, fake])).backward()
    critic_optimizer.step()
    generator_optimizer.zero_grad()
    with torch.no_grad():
        weights = [parameter.requires_grad_(False) for parameter in critic.module.parameters()]
    loss_of(critic.module(sample), real).backward()
    for parameter in weights:
        parameter.requires_grad_(True)
    generator_optimizer.step()
dist.destroy_process_group()
