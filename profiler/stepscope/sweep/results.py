"""The file of a sweep's runs: its plan in the first line, then a line for each finished run, so that a stopped sweep goes on."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from stepscope.errors import InputError
from stepscope.stats import median
from stepscope.sweep.plan import Plan

RESULTS_FILE = "runs.jsonl"

MEASURED, FAILED, NO_DDP = "measured", "failed", "no-ddp"


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    """What a run's audit and DDP itself say; of each counted step the mean over ranks, of the steps the median."""

    world_size: int
    backend: str | None
    recorded_ms: float | None
    """A step that was recorded: longer than an unrecorded one by the profiler's cost."""
    backward_ms: float | None
    comm_ms: float | None
    """Gradient communication; the transfer alone where it could be told from waiting."""
    exposed_ms: float | None
    floor_ms: float | None
    overlap_backward: float | None
    all_reduced: bool
    """All gradients went by all-reduce."""
    bucket_bytes: list[int]
    """Of DDP's buckets in their order, after the rebuild, by DDP itself; empty without DDP."""
    bucket_cap_bytes: int | None
    replaced_caps_mb: list[float]
    """Caps that the script asked for and did not get."""


class RunResult(msgspec.Struct, frozen=True, kw_only=True):
    """A finished run. status: measured, failed, or no-ddp (measured, and the bucket cap changed nothing)."""

    knobs: dict[str, str]
    round: int
    status: str
    message: str = ""
    """Why it is not plainly measured."""
    folder: str
    """Of its recording, within the sweep's."""
    started: str
    seconds: float
    step_ms: list[float] = []
    """Unrecorded steps, each the mean over ranks."""
    figures: Figures | None = None

    @property
    def time_ms(self) -> float:
        """The median unrecorded step."""
        return median(self.step_ms)


class ResultsFile:
    """The runs of one sweep in a directory. A line is there whole or is no line: one that a kill cut short is dropped."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / RESULTS_FILE

    def open(self, plan: Plan) -> list[RunResult]:
        """What is there of this sweep; begins the file where there is none.

        Raises InputError where the file is of another sweep, or none of ours.
        """
        lines = self._whole_lines()
        if not lines:
            self._append(plan)
            return []
        try:
            there = msgspec.json.decode(lines[0], type=Plan, strict=True)
            made = [msgspec.json.decode(line, type=RunResult) for line in lines[1:]]
        except msgspec.MsgspecError as error:
            raise InputError(
                f"{self._path} is no sweep's file ({error}); name another --out, or pass --force to begin anew"
            ) from error
        self._refuse_another(plan, there)
        return made

    def append(self, result: RunResult) -> None:
        """Add a finished run; it is on the disk when this returns."""
        self._append(result)

    def _append(self, line: msgspec.Struct) -> None:
        try:
            with self._path.open("ab") as file:
                file.write(msgspec.json.encode(line) + b"\n")
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise InputError(
                f"cannot write {self._path}: {error.strerror}; with room there, the same command goes on"
            ) from error

    def _whole_lines(self) -> list[bytes]:
        if not self._path.exists():
            return []
        content = self._path.read_bytes()
        whole = content.rfind(b"\n") + 1
        if whole < len(content):
            os.truncate(self._path, whole)
        return content[:whole].splitlines()

    def _refuse_another(self, plan: Plan, there: Plan) -> None:
        for name in plan.__struct_fields__:
            before, now = getattr(there, name), getattr(plan, name)
            if before != now:
                raise InputError(
                    f"{self._path.parent} holds a sweep with {name} {_shown(before)}, not {_shown(now)}; repeat its flags to "
                    "go on with it, name another --out, or pass --force to begin anew"
                )


def _shown(value: object) -> str:
    return msgspec.json.encode(value).decode()
