"""Measuring collectives: what the launcher tells the ranks to measure, and what rank 0 writes down. Imports no torch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from stepscope.capture.launch import LaunchStatus, start
from stepscope.capture.place import Fabric

VARIABLE = "STEPSCOPE_CALIBRATE"
"""The environment variable that carries the plan."""

COLLECTIVES = ("all_reduce", "reduce_scatter", "all_gather", "broadcast")
BYTES_PER_ELEMENT = 4
"""float32, as nccl-tests' default."""

LEAST_REPETITIONS = 3
"""Fewer have no spread."""
TOO_LONG = 10
"""A size is left out when its least repetitions would take this many times the seconds meant for one size."""


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What to measure."""

    output: str
    """The file that rank 0 writes after every size: a Measurement."""
    backend: str
    """torch's name, or empty: nccl where every rank has a GPU, else gloo."""
    collectives: list[str]
    sizes: list[int]
    """Bytes of the whole array, rising."""
    repeats: int
    warmup: int
    seconds_per_size: float
    """About how long one size of one collective may take."""


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One size of one collective."""

    collective: str
    bytes: int
    """Of the whole array: what each rank puts into an all-reduce or reduce-scatter, or gets from an all-gather or broadcast."""
    operations: int
    """Back to back in each repetition."""
    seconds: list[float]
    """For one operation, each repetition: that of the slowest rank."""


class Measurement(msgspec.Struct, frozen=True, kw_only=True):
    """What rank 0 wrote: complete only when `done`."""

    backend: str
    device: str
    world_size: int
    hosts: list[str]
    """Of the ranks, each once, in order of rank."""
    interface: str | None
    """What the backend was told to use; None if it chose itself."""
    versions: dict[str, str]
    environment: dict[str, str]
    rows: list[Row] = []
    left_out: dict[str, int] = {}
    """Collectives whose larger sizes would have taken too long, and the first of those."""
    done: bool = False


def rounded(size: int, ranks: int) -> int:
    """The nearest size, at least one element a rank, whose elements the ranks can share equally."""
    unit = BYTES_PER_ELEMENT * ranks
    return max(1, round(size / unit)) * unit


def measure(
    arguments: Mapping[str, Any],
    plan: Plan,
    environment: Mapping[str, str],
    progress: Callable[[int, int, str], None] | None,
    fabric: Fabric | None,
) -> tuple[Measurement | None, LaunchStatus]:
    """Launch the ranks that torchrun's `arguments` say and have them carry out the plan; what there is of it, and how it went.

    None where rank 0 is on another node, or failed before it began.
    """
    total = len(plan.collectives) * len(plan.sizes)
    seen = 0

    def watch() -> None:
        nonlocal seen
        made = read(plan.output)
        if progress is not None and made is not None and len(made.rows) != seen:
            seen = len(made.rows)
            progress(seen, total, made.rows[-1].collective)

    status = start(
        {**arguments, "training_script": "calibrate", "training_script_args": []},
        "calibrate_worker.py",
        {**environment, VARIABLE: msgspec.json.encode(plan).decode()},
        watch,
        fabric,
    )
    return read(plan.output), status


def read(path: str | Path) -> Measurement | None:
    """What was written so far; None before the first time."""
    try:
        return msgspec.json.decode(Path(path).read_bytes(), type=Measurement)
    except FileNotFoundError:
        return None


def write(path: str | Path, measurement: Measurement) -> None:
    """Replace the file in one go: the launcher reads it meanwhile."""
    draft = Path(f"{path}.part")
    draft.write_bytes(msgspec.json.encode(measurement))
    draft.replace(path)
