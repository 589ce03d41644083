"""Run the training workload once a case in this process and save what each run did, as JSON from rank 0.

Started under torchrun, or alone, with ``OUT.json NAME=FLAGS...``: one start of the ranks serves many assertions.
"""

from __future__ import annotations

import contextlib
import functools
import io
import json
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch._dynamo.utils import counters
from torch.nn.parallel import DistributedDataParallel
from torch.optim.optimizer import Optimizer, register_optimizer_step_pre_hook

from stepscope_workloads import train
from stepscope_workloads.corpus import tokens
from stepscope_workloads.flags import Flags, parse_flags
from stepscope_workloads.gpt import GPT

vars(train)["tokens"] = functools.cache(tokens)  # the same text in every case
COLLECTIVE = re.compile(r"c10d::_?(all_?reduce|all_?gather|reduce_?scatter|broadcast)")


def observe(flags: list[str]) -> dict[str, Any]:
    """Train once; return the printed losses, the collectives, gradient norms, and what DDP says of itself."""
    outputs: list[torch.dtype] = []  # of the first block's attention, one a call
    norms: list[float] = []
    printed = io.StringIO()
    counters.clear()

    def watch(model: nn.Module) -> None:
        model.get_submodule("blocks.0.attention").register_forward_hook(
            lambda *call: outputs.append(call[-1].dtype)
        )

    with contextlib.redirect_stdout(printed), watching(watch, norms) as models:  # noqa: SIM117
        with torch.profiler.profile() as profile:
            train.train(parse_flags(flags))
    ddp = models[0]
    return {
        "losses": [float(loss) for loss in re.findall(r"loss ([\d.]+)", printed.getvalue())],
        "norms": norms,
        "outputs": [str(dtype) for dtype in outputs],
        "collectives": collectives_of(profile),
        "ddp": ddp._get_ddp_logging_data() if isinstance(ddp, DistributedDataParallel) else None,
        "compiled_graphs": counters["stats"]["unique_graphs"],
    }


def collectives_of(profile: torch.profiler.profile) -> Counter[str]:
    """How often each was launched; by Kineto's own list, as `profile.events()` takes longer than the training itself."""
    assert profile.profiler is not None
    assert profile.profiler.kineto_results is not None
    names = (event.name() for event in profile.profiler.kineto_results.events())
    return Counter(found[1].replace("_", "") for name in names if (found := COLLECTIVE.match(name)))


@contextlib.contextmanager
def watching(watch: Callable[[nn.Module], None], norms: list[float]) -> Iterator[list[nn.Module]]:
    """Show `watch` each model before it is wrapped, collect it after, and the gradients' norm before each update."""
    models: list[nn.Module] = []
    parallelise = train.parallelise

    def parallelise_watched(model: GPT, args: Flags) -> nn.Module:
        watch(model)
        models.append(parallelise(model, args))
        return models[-1]

    def measure(optimizer: Optimizer, *_: object) -> None:
        gradients = [
            p.grad for group in optimizer.param_groups for p in group["params"] if p.grad is not None
        ]
        norm = nn.utils.get_total_norm(gradients)
        norms.append(float(norm.full_tensor() if hasattr(norm, "full_tensor") else norm))

    train.parallelise = parallelise_watched
    hook = register_optimizer_step_pre_hook(measure)
    try:
        yield models
    finally:
        train.parallelise = parallelise
        hook.remove()


def main(out: str, *cases: str) -> None:
    train.start_process_group(parse_flags([]))
    seen = {name: observe(flags.split()) for name, flags in (case.split("=", 1) for case in cases)}
    if dist.get_rank() == 0:
        Path(out).write_text(json.dumps(seen, default=str))
    dist.destroy_process_group()


if __name__ == "__main__":
    main(*sys.argv[1:])
