"""The bundled training script with its training thread held to a share of one CPU: `held_train.py SHARE [train.py's flags]`.

Ranks that share two cores would compute the slower the more of them there are, and two ranks would tell nothing of four. Here
each rank computes at the same rate, however many there are; the threads of the network are not held. Needs root and the cpu
controller of cgroup v1.
"""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path
from typing import Any

import torch.distributed as dist

from stepscope_workloads.train import main

CONTROLLER = Path("/sys/fs/cgroup/cpu")
PERIOD_US = 10_000


def hold(share: float) -> None:
    """Have the calling thread, and none that is there already, run for at most that share of each 10 ms."""
    group = own_group() / f"held-rank{os.environ['RANK']}"
    group.mkdir(exist_ok=True)
    (group / "cpu.cfs_period_us").write_text(str(PERIOD_US))
    (group / "cpu.cfs_quota_us").write_text(str(round(share * PERIOD_US)))
    (group / "tasks").write_text(str(threading.get_native_id()))


def own_group() -> Path:
    """The cgroup that this process is in."""
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if "cpu" in controllers.split(","):
            return CONTROLLER / path.lstrip("/")
    raise SystemExit("no cpu controller of cgroup v1 here; run the study without --share")


def hold_after_start(share: float) -> None:
    """Let the process group start its own threads first."""
    start = dist.init_process_group

    def started(*args: Any, **kwargs: Any) -> None:
        start(*args, **kwargs)
        hold(share)

    dist.init_process_group = started


if __name__ == "__main__":
    hold_after_start(float(sys.argv.pop(1)))
    main()
