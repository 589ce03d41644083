"""run.json out of the ranks' files: one writer a storage, on the node of the lowest rank that the storage holds."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from stepscope import __version__
from stepscope.capture.cost import profiler_cost
from stepscope.capture.launch import LaunchStatus
from stepscope.capture.metadata import (
    RUN_FILE,
    ProfilerCost,
    RankMetadata,
    RankRecord,
    RunMetadata,
    write_json,
)

OTHER_NODES_SECONDS = 30.0
"""How long the writer waits for the ranks of other nodes that share its storage."""


@dataclass(frozen=True)
class Command:
    """What the launcher knows of a run."""

    arguments: list[str]
    script: str
    started: str
    warmup: int
    steps: int
    with_stack: bool
    launch_id: str
    set_by_launcher: list[str]


def rank_files(run_dir: Path) -> list[RankMetadata]:
    """What the ranks have written of themselves so far, in the order of ranks."""
    found = [
        msgspec.json.decode(path.read_bytes(), type=RankMetadata) for path in run_dir.glob("rank*.meta.json")
    ]
    return sorted(found, key=lambda rank: rank.rank)


def merge(run_dir: Path, command: Command, outcome: LaunchStatus) -> RunMetadata | None:
    """Write run.json and take the ranks' files away; None where another node of this storage does it, or no rank ever began."""
    ranks = rank_files(run_dir)
    if not ranks or ranks[0].launch_id != command.launch_id:
        return None
    ranks = _with_other_nodes(run_dir, command.launch_id)
    run = _run(command, ranks, {failure.rank: failure.exit_code for failure in outcome.failures})
    write_json(run_dir / RUN_FILE, run)
    for path in run_dir.glob("rank*.meta.json"):
        path.unlink()
    return run


def _with_other_nodes(run_dir: Path, launch_id: str) -> list[RankMetadata]:
    deadline = time.monotonic() + OTHER_NODES_SECONDS
    while True:
        ranks = rank_files(run_dir)
        if all(rank.state == "ended" or rank.launch_id == launch_id for rank in ranks):
            return ranks
        if time.monotonic() > deadline:
            return ranks
        time.sleep(0.2)


def _run(command: Command, ranks: Sequence[RankMetadata], exit_codes: dict[int, int]) -> RunMetadata:
    first = ranks[0]
    recorded = [set(rank.recorded_steps) for rank in ranks if rank.trace is not None]
    source = next((rank for rank in ranks if rank.trace is not None), first)
    return RunMetadata(
        stepscope=__version__,
        command=command.arguments,
        script=command.script,
        started=command.started,
        world_size=max(rank.world_size for rank in ranks),
        backend=source.backend,
        hosts=list(dict.fromkeys(rank.host for rank in ranks)),
        versions=first.versions,
        environment=first.environment,
        set_by_launcher=command.set_by_launcher,
        warmup=command.warmup,
        steps=command.steps,
        with_stack=command.with_stack,
        recorded_steps=sorted(set.intersection(*recorded)) if recorded else [],
        optimizers=source.optimizers,
        skipped_by_grad_scaler=source.skipped_by_grad_scaler,
        profiler_cost=_cost(ranks),
        ddp=source.ddp,
        fsdp=source.fsdp,
        ranks=[_record(rank, exit_codes.get(rank.rank)) for rank in ranks],
    )


def _record(rank: RankMetadata, exit_code: int | None) -> RankRecord:
    status = "ended" if rank.state == "ended" and exit_code is None else "failed"
    return RankRecord(
        rank=rank.rank,
        local_rank=rank.local_rank,
        host=rank.host,
        device=rank.device,
        status=status,
        exit_code=exit_code,
        steps_seen=rank.steps_seen if rank.state == "ended" else None,
        trace=rank.trace,
        recorded_steps=rank.recorded_steps,
        unfinished_step=rank.unfinished_step,
        problem=rank.problem,
        error=rank.error,
        step_times=rank.step_times,
        profiler_cost=rank.profiler_cost,
    )


def _cost(ranks: Sequence[RankMetadata]) -> ProfilerCost | None:
    def times(kind: str) -> list[float]:
        return [
            time.wall_ms if time.device_ms is None else time.device_ms
            for rank in ranks
            for time in rank.step_times
            if time.kind == kind
        ]

    return profiler_cost(times("unprofiled"), times("recorded"))
