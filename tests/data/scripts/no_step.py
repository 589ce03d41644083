"""Updates its parameters by hand: no optimizer ever steps."""

import torch
from torch import nn

model = nn.Linear(4, 4)
for _step in range(3):
    model(torch.randn(2, 4)).sum().backward()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.sub_(0.1 * parameter.grad)
            parameter.grad = None
print("trained by hand")
