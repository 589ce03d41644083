"""Memory of model states under ZeRO: parameters, gradients and optimizer state. Activations and buffers are not in it.

Mixed-precision Adam keeps 2 bytes of parameter, 2 of gradient and 12 of optimizer state (an fp32 copy, momentum, variance)
for each parameter: 16 psi. Stage 1 shares the optimizer state among the P ranks, stage 2 gradients too, stage 3 parameters
too. Source: Rajbhandari et al., "ZeRO", SC 2020, section 3 and figure 1.

The worked example that this model follows prints 2.42 + 1.06 = 3.48 GiB for stage 2 of 1.3e9 parameters on 32 ranks. That is
an error: 14 x 1.3e9 / 32 = 0.569e9 bytes = 0.53 GiB, so the total is 2.95 GiB, down from 19.4.
"""

from __future__ import annotations

from stepscope.budget.quantities import Size
from stepscope.budget.result import StageMemory
from stepscope.budget.setting import STAGES
from stepscope.budget.traffic import PASSES

PARAMETER_BYTES, GRADIENT_BYTES, OPTIMIZER_BYTES = 2, 2, 12
"""Mixed-precision Adam, per parameter."""


def stage_memory(parameters: float, ranks: int, stage: int) -> StageMemory:
    """Model states of one rank under a stage."""

    def share(bytes_each: int, from_stage: int) -> Size:
        return Size.from_bytes(parameters * bytes_each / (ranks if stage >= from_stage else 1))

    states = share(PARAMETER_BYTES, 3), share(GRADIENT_BYTES, 2), share(OPTIMIZER_BYTES, 1)
    return StageMemory(
        stage=stage,
        parameters=states[0],
        gradients=states[1],
        optimizer=states[2],
        total=states[0] + states[1] + states[2],
        volume=PASSES[stage].volume,
    )


def all_stages(parameters: float, ranks: int) -> tuple[StageMemory, ...]:
    """Stages 0 to 3."""
    return tuple(stage_memory(parameters, ranks, stage) for stage in STAGES)
