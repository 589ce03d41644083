"""One description of a job whose nodes each kept a run directory of their own, on storage that they do not share."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from stepscope.capture.cost import profiler_cost
from stepscope.capture.metadata import RunMetadata


def as_one_run(runs: Sequence[RunMetadata]) -> RunMetadata | None:
    """The parts of one job as one run.json; None where they are no such parts: another script or size, or a rank twice."""
    runs = sorted(runs, key=lambda run: min(rank.rank for rank in run.ranks))
    ranks = [rank for run in runs for rank in run.ranks]
    alike = {(run.script, run.world_size, run.warmup, run.steps) for run in runs}
    if len(alike) > 1 or len({rank.rank for rank in ranks}) < len(ranks):
        return None
    recorded = [set(run.recorded_steps) for run in runs if run.recorded_steps]
    return msgspec.structs.replace(
        runs[0],
        hosts=list(dict.fromkeys(host for run in runs for host in run.hosts)),
        recorded_steps=sorted(set.intersection(*recorded)) if recorded else [],
        profiler_cost=profiler_cost(time for rank in ranks for time in rank.step_times),
        ranks=sorted(ranks, key=lambda rank: rank.rank),
    )
