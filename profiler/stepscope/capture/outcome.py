"""What to tell of a run that did not go as it should, in one line."""

from __future__ import annotations

import re
import signal
from collections.abc import Sequence
from pathlib import Path

from stepscope.capture.launch import LaunchStatus, RankFailure
from stepscope.capture.metadata import RankRecord, RunMetadata

ENDED_BY_TORCHRUN = -signal.SIGTERM
"""How the ranks end that torchrun takes down after the first failure."""

LONGEST_ERROR = 160


def what_failed(
    outcome: LaunchStatus, run: RunMetadata | None, run_dir: Path, kept: str | None = None
) -> str | None:
    """Which rank failed, or why nothing could be launched; None where nothing did. kept: what is left of the run."""
    if outcome.kind == "error":
        return launch_error(outcome.message)
    if not outcome.failures:
        return None
    known = {rank.rank: rank for rank in run.ranks} if run is not None else {}
    first = first_failure(outcome.failures, known)
    record = known.get(first.rank)
    step = f" at step {record.steps_seen}" if record and record.steps_seen is not None else ""
    error = f" ({_short(record.error)})" if record and record.error else ""
    return f"rank {first.rank} {_ended(first.exit_code)}{step}{error}; {kept or what_is_kept(run, run_dir)}"


def what_is_kept(run: RunMetadata | None, run_dir: Path) -> str:
    """The ranks whose traces there are, or who says so; run: None on a node that does not write it, or where no rank began."""
    if run is None and any(run_dir.glob("rank*")):
        return f"the node of rank 0 says what is kept in {run_dir}"
    traced = [str(rank.rank) for rank in run.ranks if rank.trace] if run is not None else []
    if not traced:
        return "no step was recorded"
    what = f"trace of rank {traced[0]} is" if len(traced) == 1 else f"traces of ranks {', '.join(traced)} are"
    return f"the {what} kept in {run_dir}"


def first_failure(failures: Sequence[RankFailure], known: dict[int, RankRecord]) -> RankFailure:
    """The rank that failed by itself and first, as far as that can be told.

    Its peers fail within milliseconds, of a lost connection, so that torchrun sees all of them at once. A rank that died
    without a word was killed or crashed, which its peers were not; else the time at which the scripts ended decides.
    """

    def order(failure: RankFailure) -> tuple[bool, bool, int]:
        record = known.get(failure.rank)
        ended = record.ended_ns if record is not None else None
        return failure.exit_code == ENDED_BY_TORCHRUN, ended is not None, ended or 0

    return min(failures, key=order)


def what_is_missing(run: RunMetadata | None) -> str | None:
    """Why less than asked for was recorded, as the lowest rank says it; None where all is there."""
    problems = [rank.problem for rank in run.ranks if rank.problem] if run is not None else []
    return problems[0] if problems else None


def what_was_gathered(run: RunMetadata | None, run_dir: Path) -> str | None:
    """How much was moved in place of the traces; None where nothing was gathered."""
    ranks = [rank for rank in run.ranks if rank.trace and rank.trace_bytes] if run is not None else []
    if not ranks:
        return None
    moved = sum((run_dir / str(rank.trace)).stat().st_size for rank in ranks) / 1e6
    traces = sum(rank.trace_bytes or 0 for rank in ranks) / 1e6
    return f"gathered {moved:.2f} MB from {len(ranks)} ranks in place of {traces:.2f} MB of traces"


def launch_error(message: str) -> str:
    """What torchrun's own failure means and what to do about it."""
    if "EADDRINUSE" in message or "address already in use" in message.lower():
        port = re.search(r"port: (\d+)", message)
        which = f"port {port[1]}" if port else "the rendezvous port"
        return f"{which} is in use; pass another --master-port (or --rdzv-endpoint), or none on a single node"
    if message.startswith("Rendezvous"):
        return f"the nodes did not find each other: {_short(message)}; check --rdzv-endpoint, --nnodes and --rdzv-id"
    return f"torchrun could not start: {_short(message)}"


def _ended(exit_code: int) -> str:
    return (
        f"failed with exit code {exit_code}"
        if exit_code >= 0
        else f"was killed by {signal.Signals(-exit_code).name}"
    )


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= LONGEST_ERROR else f"{line[: LONGEST_ERROR - 3]}..."
