"""A training script with compute that nothing disturbs: `held.py SHARE gpt|gpt-faults|SCRIPT.py [its flags]`.

Ranks that share two cores would compute the slower the more of them there are and the more they send. Here each rank's training
thread has the same share of the first CPU, and all threads of the network have the others. Needs root, two CPUs and the cpu
controller of cgroup v1.
"""

from __future__ import annotations

import importlib
import os
import runpy
import sys
import threading
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import torch.distributed as dist

CONTROLLER = Path("/sys/fs/cgroup/cpu")
PERIOD_US = 10_000


def hold(share: float, cpu: int) -> None:
    """Have the calling thread, and none that is there already, run on one CPU for at most that share of each 10 ms."""
    os.sched_setaffinity(0, {cpu})
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


def remove_groups() -> None:
    """After the ranks have ended."""
    for group in own_group().glob("held-rank*"):
        group.rmdir()


def hold_after_start(share: float) -> None:
    """Let the process group start its own threads first, on the other CPUs."""
    first, *others = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, others)
    start = dist.init_process_group

    def started(*args: Any, **kwargs: Any) -> None:
        start(*args, **kwargs)
        hold(share, first)

    dist.init_process_group = started


def main() -> None:
    _, share, script = sys.argv[:3]
    del sys.argv[1:3]
    hold_after_start(float(share))
    if script.endswith(".py"):
        runpy.run_path(script, run_name="__main__")
    else:
        (workload,) = entry_points(group="stepscope.workloads", name=script)
        importlib.import_module(workload.module).main()


if __name__ == "__main__":
    main()
