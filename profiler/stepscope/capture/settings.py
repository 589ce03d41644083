"""What a rank is and what it runs on: its place in the process group, its device, versions, settings of its environment."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import socket
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from stepscope.capture.environment import overlap_settings


@dataclass(frozen=True)
class Identity:
    """Which rank this process is; the process group's word goes before the launcher's."""

    rank: int
    local_rank: int
    world_size: int
    host: str
    pid: int
    device: str
    backend: str | None


def identity(before: Identity | None) -> Identity:
    """This process as it is now, or as it was `before` if it has left its process group since."""
    in_group = dist.is_available() and dist.is_initialized()
    if before is not None and before.backend is not None and not in_group:
        return before
    return Identity(
        rank=dist.get_rank() if in_group else int(os.environ.get("RANK", "0")),
        local_rank=int(os.environ.get("LOCAL_RANK", "0")),
        world_size=dist.get_world_size() if in_group else int(os.environ.get("WORLD_SIZE", "1")),
        host=socket.gethostname(),
        pid=os.getpid(),
        device=_device(),
        backend=dist.get_backend() if in_group else None,
    )


def wall_clock_ns() -> int:
    """The time of day, which the ranks of one host share."""
    return time.time_ns()


def process_started() -> float | None:
    """When this process began: the time of day in s, to 10 ms or so; None where there is no Linux to tell it."""
    if sys.platform != "linux":
        return None
    # proc(5): field 22, counted from 1, in ticks since the machine was started
    ticks = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
    running = time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")
    return time.time() - running


def versions() -> dict[str, str]:
    """Of Python, numpy, torch and the libraries below it that this process has."""
    found = {
        "python": platform.python_version(),
        "torch": str(torch.__version__),
        "numpy": importlib.metadata.version("numpy"),
    }
    if torch.version.cuda is not None:
        found["cuda"] = torch.version.cuda
    if torch.version.hip is not None:
        found["rocm"] = torch.version.hip
    if torch.cuda.is_initialized() and dist.is_available() and dist.is_nccl_available():
        version: Any = torch.cuda.nccl.version()
        found["nccl"] = ".".join(str(part) for part in version)
    return found


def environment() -> dict[str, str]:
    """This process's variables that change overlap."""
    return overlap_settings(os.environ)


def _device() -> str:
    """The GPU that is in use. Asking for one that is not would start CUDA, with what the script has not set yet."""
    if torch.cuda.is_initialized():
        return torch.cuda.get_device_name(torch.cuda.current_device())
    return f"cpu ({platform.processor() or platform.machine()})"
