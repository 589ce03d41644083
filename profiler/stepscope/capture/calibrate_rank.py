"""A rank of a calibration: runs collectives of rising sizes and times them.

Time is measured as nccl-tests does (doc/PERFORMANCE.md and README.md of NVIDIA/nccl-tests): operations back to back after a
barrier, divided by their number, the slowest rank's time. Short operations are repeated within one repetition until it lasts
long enough for the ranks' different starts after the barrier not to matter.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any

import msgspec
import torch
import torch.distributed as dist

from stepscope.capture import settings
from stepscope.capture.calibrate import (
    BYTES_PER_ELEMENT,
    LEAST_REPETITIONS,
    TOO_LONG,
    VARIABLE,
    Measurement,
    Plan,
    Row,
    rounded,
    write,
)
from stepscope.capture.environment import overlap_settings

REPETITION_S = 0.02
MOST_OPERATIONS = 200
"""A repetition has as many operations as take REPETITION_S, and no more than these."""

Operation = Callable[[], Any]


def main() -> None:
    """Measure what the environment says; rank 0 writes it down."""
    plan = msgspec.json.decode(os.environ.pop(VARIABLE), type=Plan)
    device = _device(plan.backend)
    dist.init_process_group(
        plan.backend or ("nccl" if device.type == "cuda" else "gloo"),
        device_id=device if device.type == "cuda" else None,
    )
    try:
        _measure_all(plan, device)
    finally:
        dist.destroy_process_group()


def _device(backend: str) -> torch.device:
    if backend == "gloo" or not torch.cuda.is_available():
        return torch.device("cpu")
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    return device


def _measure_all(plan: Plan, device: torch.device) -> None:
    made = _header(device)
    first = dist.get_rank() == 0
    for collective in plan.collectives:
        previous = 0.0, 0
        for size in sorted({rounded(size, made.world_size) for size in plan.sizes}):
            if _too_long(previous, size, plan.seconds_per_size):
                made = msgspec.structs.replace(made, left_out={**made.left_out, collective: size})
                break
            row = _measure(collective, size, plan, device, previous)
            previous = sorted(row.seconds)[len(row.seconds) // 2], size
            made = msgspec.structs.replace(made, rows=[*made.rows, row])
            if first:
                write(plan.output, made)
    if first:
        write(plan.output, msgspec.structs.replace(made, done=True))


def _too_long(previous: tuple[float, int], size: int, seconds: float) -> bool:
    """Judged by the size before, as if time were in proportion; equal on all ranks, whose times are the slowest one's."""
    before, size_before = previous
    return bool(size_before) and before * size / size_before * LEAST_REPETITIONS > TOO_LONG * seconds


def _measure(
    collective: str, size: int, plan: Plan, device: torch.device, previous: tuple[float, int]
) -> Row:
    operation = _operation(collective, size, device)
    before, size_before = previous
    # a long operation has the one before it for a warm-up
    warm = before * size / max(size_before, 1) * plan.warmup <= plan.seconds_per_size
    for _ in range(plan.warmup if warm else 0):
        operation()
    once = _slowest(_timed(operation, 1, device), device)
    operations = max(1, min(MOST_OPERATIONS, int(REPETITION_S / once)))
    within = int(plan.seconds_per_size / (once * operations))
    count = min(plan.repeats, max(LEAST_REPETITIONS, within))
    times = [_timed(operation, operations, device) for _ in range(count)]
    return Row(collective=collective, bytes=size, operations=operations, seconds=_slowest_of(times, device))


def _timed(operation: Operation, operations: int, device: torch.device) -> float:
    """Seconds of one operation on this rank."""
    dist.barrier()
    _finish(device)
    started = time.perf_counter()
    for _ in range(operations):
        operation()
    _finish(device)
    return (time.perf_counter() - started) / operations


def _finish(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _slowest(seconds: float, device: torch.device) -> float:
    return _slowest_of([seconds], device)[0]


def _slowest_of(seconds: list[float], device: torch.device) -> list[float]:
    times = torch.tensor(seconds, dtype=torch.float64, device=device)
    dist.all_reduce(times, dist.ReduceOp.MAX)
    slowest: list[float] = times.tolist()
    return slowest


def _operation(collective: str, size: int, device: torch.device) -> Operation:
    whole = torch.zeros(size // BYTES_PER_ELEMENT, device=device)
    part = torch.zeros(whole.numel() // dist.get_world_size(), device=device)
    # torch 2.13 gave the two a new name and warns of the old one
    scatter = getattr(dist, "reduce_scatter_single", dist.reduce_scatter_tensor)
    gather = getattr(dist, "all_gather_single", dist.all_gather_into_tensor)
    operations: dict[str, Operation] = {
        "all_reduce": lambda: dist.all_reduce(whole),
        "reduce_scatter": lambda: scatter(part, whole),
        "all_gather": lambda: gather(whole, part),
        "broadcast": lambda: dist.broadcast(whole, 0),
    }
    return operations[collective]


def _header(device: torch.device) -> Measurement:
    identity = settings.identity(None)
    hosts: list[str] = [""] * identity.world_size
    dist.all_gather_object(hosts, identity.host)
    backend = identity.backend or ""
    return Measurement(
        backend=backend,
        device=identity.device,
        world_size=identity.world_size,
        hosts=list(dict.fromkeys(hosts)),
        interface=os.environ.get(f"{backend.upper()}_SOCKET_IFNAME"),
        versions=settings.versions(),
        environment=overlap_settings(os.environ),
    )
