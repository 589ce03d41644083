"""run.json out of the ranks' files: one writer a storage, the launch of the lowest rank that the storage holds."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import msgspec

from stepscope import __version__
from stepscope.capture.config import CaptureConfig
from stepscope.capture.cost import profiler_cost
from stepscope.capture.metadata import RUN_FILE, RankMetadata, RankRecord, RunMetadata, write_json

OTHERS_SECONDS = 30.0
"""How long the writer waits for ranks that share its storage and that its launcher did not wait for."""


@dataclass(frozen=True)
class Command:
    """What the launcher knows of a run."""

    arguments: list[str]
    script: str
    started: datetime
    config: CaptureConfig
    known_environment: frozenset[str]
    """Names of the variables that the user had set."""


def rank_files(run_dir: Path) -> list[RankMetadata]:
    """What the ranks have written of themselves so far, in the order of ranks."""
    ranks = []
    for path in _paths(run_dir):
        with suppress(FileNotFoundError):  # the writer takes them away
            ranks.append(msgspec.json.decode(path.read_bytes(), type=RankMetadata))
    return ranks


def _paths(run_dir: Path) -> list[Path]:
    """The ranks' files, in the order of ranks."""
    return sorted(run_dir.glob("rank*.meta.json"), key=lambda path: (len(path.name), path.name))


def merge(run_dir: Path, command: Command, exit_codes: Mapping[int, int]) -> RunMetadata | None:
    """Write run.json and take the ranks' files away; None where another launch does it, or no rank ever began.

    exit_codes: of the ranks that failed.
    """
    ranks = rank_files(run_dir)
    if not ranks or ranks[0].launch_id != command.config.launch_id:
        return None
    ranks = _awaited(run_dir, command.config.launch_id)
    if ranks[0].gathered and ranks[0].rank != 0:
        _remove_rank_files(run_dir)  # the node of rank 0 has them all
        return None
    run = _run(command, ranks, exit_codes)
    write_json(run_dir / RUN_FILE, run)
    _remove_rank_files(run_dir)
    return run


def _remove_rank_files(run_dir: Path) -> None:
    # the lowest last: as long as any is there, it says whose task this is
    for path in reversed(_paths(run_dir)):
        path.unlink()


def _awaited(run_dir: Path, launch_id: str) -> list[RankMetadata]:
    deadline = time.monotonic() + OTHERS_SECONDS
    while True:
        ranks = rank_files(run_dir)
        # torchrun has waited for its own ranks: one of them that has not said that it ended never will
        others_running = any(rank.launch_id != launch_id and rank.state != "ended" for rank in ranks)
        if not others_running or time.monotonic() > deadline:
            return ranks
        time.sleep(0.1)


def _run(command: Command, ranks: Sequence[RankMetadata], exit_codes: Mapping[int, int]) -> RunMetadata:
    from stepscope.capture.noise_scale import noise_scale

    traced = [rank for rank in ranks if rank.trace is not None]
    source = (traced or ranks)[0]
    silent = [rank for rank in exit_codes if rank not in {known.rank for known in ranks}]
    return RunMetadata(
        stepscope=__version__,
        command=command.arguments,
        script=command.script,
        started=command.started.isoformat(timespec="seconds"),
        world_size=max(rank.world_size for rank in ranks),
        backend=source.backend,
        hosts=list(dict.fromkeys(rank.host for rank in ranks)),
        versions=source.versions,
        environment=source.environment,
        set_by_launcher=[name for name in source.environment if name not in command.known_environment],
        warmup=command.config.warmup,
        steps=command.config.steps,
        with_stack=command.config.with_stack,
        recorded_steps=sorted(set.intersection(*(set(rank.recorded_steps) for rank in traced)))
        if traced
        else [],
        optimizers=source.optimizers,
        skipped_by_grad_scaler=source.skipped_by_grad_scaler,
        profiler_cost=profiler_cost(time for rank in ranks for time in rank.step_times),
        ddp=source.ddp,
        replaced_bucket_caps_mb=source.replaced_bucket_caps_mb,
        fsdp=source.fsdp,
        noise_scale=noise_scale(ranks),
        ranks=[
            *(_record(rank, exit_codes.get(rank.rank)) for rank in ranks),
            *(RankRecord(rank=rank, status="failed", exit_code=exit_codes[rank]) for rank in silent),
        ],
    )


def _record(rank: RankMetadata, exit_code: int | None) -> RankRecord:
    ended = rank.state == "ended"
    return RankRecord(
        rank=rank.rank,
        status="ended" if ended and exit_code is None and rank.error is None else "failed",
        exit_code=exit_code,
        local_rank=rank.local_rank,
        host=rank.host,
        device=rank.device,
        steps_seen=rank.steps_seen if ended else None,
        ended_ns=rank.written_ns if ended else None,
        trace=rank.trace,
        trace_bytes=rank.trace_bytes,
        recorded_steps=rank.recorded_steps,
        unfinished_step=rank.unfinished_step,
        problem=rank.problem,
        error=rank.error,
        step_times=rank.step_times,
        profiler_cost=profiler_cost(rank.step_times),
    )
