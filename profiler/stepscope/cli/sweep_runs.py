"""One run of a sweep: launched, recorded, audited, and what it says in figures."""

from __future__ import annotations

import argparse
import os
import shutil
import time
import uuid
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from statistics import fmean
from typing import Any

from stepscope.audit.result import Audit, Step
from stepscope.capture.config import CaptureConfig
from stepscope.capture.launch import LaunchStatus, launch, rank_environment
from stepscope.capture.merge import Command, merge
from stepscope.capture.metadata import RunMetadata, StepTime
from stepscope.capture.outcome import what_failed, what_is_missing
from stepscope.capture.place import Fabric
from stepscope.capture.target import Target
from stepscope.cli.audit import audit_paths
from stepscope.cli.recorded import over_steps
from stepscope.cli.reports import find_report
from stepscope.cli.stored import AUDIT_FILE
from stepscope.cli.sweep_options import OWN_OPTIONS, change, variables_of
from stepscope.errors import InputError
from stepscope.sweep.plan import AS_IN_SCRIPT, BUCKET_CAP, Slot
from stepscope.sweep.results import FAILED, MEASURED, NO_DDP, Figures, RunResult

RUNS = "runs"
LOG_FILE = "log.txt"
"""Beside a run's recording: what the script printed."""


class Stopped(Exception):
    """A signal ended a run; `name` is the signal's."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name


@dataclass(frozen=True, kw_only=True)
class Launcher:
    """What all runs of a sweep share."""

    args: argparse.Namespace
    argv: Sequence[str]
    target: Target
    folder: Path
    processes: int | None
    gpus: int
    fabric: Fabric | None

    def measure(self, slot: Slot, knobs: dict[str, str]) -> RunResult:
        """Make one run; what goes wrong in it is in the result. Raises Stopped where a signal ended it."""
        name = f"{RUNS}/{slot.candidate:02}-{_slug(knobs)}-round{slot.round + 1}"
        run_dir = self.folder / name
        shutil.rmtree(run_dir, ignore_errors=True)  # of a run that was stopped
        run_dir.mkdir(parents=True)
        started, begin = datetime.now(UTC), time.monotonic()
        status, message, steps, figures = self._attempt(run_dir, knobs, started)
        return RunResult(
            knobs=knobs,
            round=slot.round,
            status=status,
            message=message,
            folder=name,
            started=started.isoformat(timespec="seconds"),
            seconds=round(time.monotonic() - begin, 3),
            step_ms=steps,
            figures=figures,
        )

    def _attempt(
        self, run_dir: Path, knobs: dict[str, str], started: datetime
    ) -> tuple[str, str, list[float], Figures | None]:
        try:
            run, outcome = self._launch(run_dir, knobs, started)
        except TimeoutError as error:
            return FAILED, str(error), [], None
        if outcome.kind == "signal":
            raise Stopped(outcome.message)
        failed = what_failed(outcome, run, run_dir)
        if failed is not None or run is None:
            return FAILED, failed or "no rank began", [], None
        steps = unrecorded_steps(run)
        if not steps or not any(rank.trace for rank in run.ranks):
            missing = what_is_missing(run) or "no step was timed without the profiler; raise --warmup"
            return FAILED, missing, [], None
        try:
            figures = _figures(run, _audit(run_dir))
        except InputError as error:
            return FAILED, str(error), steps, None
        status, message = _whether_it_took(knobs, figures, self.args.flags)
        return status, message, steps, figures

    def _launch(
        self, run_dir: Path, knobs: dict[str, str], started: datetime
    ) -> tuple[RunMetadata | None, LaunchStatus]:
        made = change(knobs, self.args.flags, variables_of(self.args))
        environment = {**os.environ, **made.environment}
        command = Command(
            arguments=["stepscope", "sweep", *self.argv],
            script=self.target.name,
            started=started,
            config=CaptureConfig(
                run_dir=str(run_dir.resolve()),
                warmup=self.args.warmup,
                steps=self.args.steps,
                stop=True,
                launch_id=uuid.uuid4().hex,
                module=self.target.module,
                bucket_cap_mb=made.bucket_cap_mb,
            ),
            known_environment=frozenset(environment),
        )
        with (run_dir / LOG_FILE).open("wb") as log:
            outcome = launch(
                self._torchrun_arguments(made.arguments),
                command.config,
                rank_environment(environment, self.processes, self.gpus),
                _clock(self.args.run_timeout, run_dir),
                self.fabric,
                stdout=log.fileno(),
                stderr=log.fileno(),
            )
        run = merge(run_dir, command, {failure.rank: failure.exit_code for failure in outcome.failures})
        return run, outcome

    def _torchrun_arguments(self, more: Sequence[str]) -> dict[str, Any]:
        ours = {
            **vars(self.args),
            "training_script": self.target.name,
            "training_script_args": [*self.args.training_script_args, *more],
        }
        return {name: value for name, value in ours.items() if name not in (*OWN_OPTIONS, "knobs", "flags")}


def _slug(knobs: Mapping[str, str]) -> str:
    text = "-".join(knobs.values())
    return "".join(character if character.isalnum() or character in ".-" else "_" for character in text)[:60]


def _clock(limit: int | None, run_dir: Path) -> Callable[[], None]:
    """Raises TimeoutError once a run has taken longer than its limit."""
    begin = time.monotonic()

    def look() -> None:
        if limit is not None and time.monotonic() - begin > limit:
            raise TimeoutError(f"took longer than --run-timeout {limit} s; see {run_dir / LOG_FILE}")

    return look


def _audit(run_dir: Path) -> Audit:
    made = audit_paths([str(run_dir)])
    find_report("json").write(made, run_dir / AUDIT_FILE)
    return made


def unrecorded_steps(run: RunMetadata) -> list[float]:
    """Each step without a profiler that all ranks timed: the mean over ranks, ms; device times where there are any."""
    ranks: defaultdict[int, list[StepTime]] = defaultdict(list)
    for rank in run.ranks:
        for one in rank.step_times:
            if one.kind == "unprofiled":
                ranks[one.step].append(one)
    timed = [rank for rank in run.ranks if rank.step_times]
    return [
        fmean(one.wall_ms if one.device_ms is None else one.device_ms for one in times)
        for _, times in sorted(ranks.items())
        if len(times) == len(timed)
    ]


def _figures(run: RunMetadata, audit: Audit) -> Figures:
    recorded = run.profiler_cost.recorded_ms if run.profiler_cost is not None else None
    kinds = {one.kind for one in audit.collectives if one.gradient}
    sizes = [
        size for module in run.ddp for size in module.rebuilt_bucket_bytes or module.initial_bucket_bytes
    ]
    return Figures(
        world_size=run.world_size,
        backend=run.backend,
        recorded_ms=recorded,
        backward_ms=over_steps(audit, lambda step: step.backward_compute_ms),
        comm_ms=over_steps(audit, _transfer),
        exposed_ms=over_steps(audit, lambda step: None if step.grad is None else step.grad.exposed_ms),
        floor_ms=over_steps(audit, lambda step: None if step.grad is None else step.grad.floor_ms),
        overlap_backward=audit.verdict.overlap_backward,
        all_reduced=kinds == {"all_reduce"},
        bucket_bytes=sizes,
        bucket_cap_bytes=max((module.bucket_cap_bytes for module in run.ddp), default=None),
        replaced_caps_mb=run.replaced_bucket_caps_mb,
    )


def _transfer(step: Step) -> float | None:
    if step.grad is None:
        return None
    return step.grad.comm_ms if step.grad.wire_ms is None else step.grad.wire_ms


def _whether_it_took(knobs: Mapping[str, str], figures: Figures, flags: Mapping[str, str]) -> tuple[str, str]:
    """Whether the bucket cap that was asked for is the one that DDP had, by DDP itself."""
    asked = knobs.get(BUCKET_CAP)
    if asked is None:
        return MEASURED, ""
    if figures.bucket_cap_bytes is None:
        return NO_DDP, "the script made no DistributedDataParallel module, so the bucket cap changed nothing"
    had = figures.bucket_cap_bytes / 2**20
    if asked == AS_IN_SCRIPT or abs(had - float(asked)) * 2**20 <= 1:
        return MEASURED, ""
    means = (
        f"the flag {flags[BUCKET_CAP]} does not set it; leave --flag-for {BUCKET_CAP} out"
        if flags.get(BUCKET_CAP)
        else "something in the script changes it after DDP was made"
    )
    return FAILED, f"DDP had a bucket cap of {had:g} MiB: {means}"
