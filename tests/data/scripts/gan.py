"""Two networks, two optimizers: `--critic-steps` discriminator steps for each generator step."""

import argparse

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

parser = argparse.ArgumentParser()
parser.add_argument("--critic-steps", type=int, default=1)
parser.add_argument("--generator-steps", type=int, default=9)
args = parser.parse_args()

dist.init_process_group("gloo")
torch.manual_seed(0)
generator = DistributedDataParallel(nn.Linear(8, 16))
critic = DistributedDataParallel(nn.Linear(16, 1))
critic_optimizer = torch.optim.RMSprop(critic.parameters())
generator_optimizer = torch.optim.Adam(generator.parameters())
for _step in range(args.generator_steps):
    for _critic_step in range(args.critic_steps):
        critic_optimizer.zero_grad()
        fake = generator(torch.randn(4, 8)).detach()
        (critic(fake).mean() - critic(torch.randn(4, 16)).mean()).backward()
        critic_optimizer.step()
    generator_optimizer.zero_grad()
    (-critic(generator(torch.randn(4, 8))).mean()).backward()
    generator_optimizer.step()
dist.destroy_process_group()
