"""Train with faults, once a case in this process, and save losses and collectives as JSON from rank 0.

Started under torchrun with ``OUT.json NAME::FLAGS...``: one start of the ranks serves many assertions.
"""

from __future__ import annotations

import contextlib
import io
import json
import re
import sys
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from stepscope_workloads import faults, train
from workload_probe import collectives_of


def observe(flags: list[str]) -> dict[str, Any]:
    """Train once; return the printed losses and the collectives that rank 0 launched."""
    broken, args = faults.read_flags(flags)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), torch.profiler.profile() as profile:
        faults.run(broken, args)
    return {
        "losses": [float(loss) for loss in re.findall(r"loss ([\d.]+)", printed.getvalue())],
        "collectives": collectives_of(profile),
    }


def main(out: str, *cases: str) -> None:
    train.start_process_group(faults.read_flags(["--fault", "none"])[1])
    seen = {name: observe(flags.split()) for name, flags in (case.split("::", 1) for case in cases)}
    if dist.get_rank() == 0:
        Path(out).write_text(json.dumps(seen))
    dist.destroy_process_group()


if __name__ == "__main__":
    main(*sys.argv[1:])
