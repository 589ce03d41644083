"""What a recorded run says of itself in run.json (`stepscope.run/1`), as far as a report shows it."""

from __future__ import annotations

import msgspec

from stepscope.audit.result import Audit

SCHEMA = "stepscope.run/1"


class ProfilerCost(msgspec.Struct, frozen=True):
    """Recorded steps beside unrecorded ones of the same run."""

    ratio: float
    ratio_ci: tuple[float, float] | None = None


class NoiseScale(msgspec.Struct, frozen=True):
    """In batches of one rank's optimizer step, or why it can't be told."""

    rank_batches: float | None = None
    problem: str | None = None


class Run(msgspec.Struct, frozen=True):
    """The fields that are shown; others are passed over."""

    script: str | None = None
    versions: dict[str, str] = {}
    profiler_cost: ProfilerCost | None = None
    noise_scale: NoiseScale | None = None


def run_of(audit: Audit) -> Run | None:
    """The run that an audit belongs to; None for traces of other origin."""
    if audit.run is None or audit.run.get("schema") != SCHEMA:
        return None
    return msgspec.convert(audit.run, Run)


def sentences(run: Run) -> list[str]:
    """What ran, its gradient noise scale where that was asked for, and what recording it cost."""
    said = []
    parts = [run.script, f"torch {run.versions['torch']}" if "torch" in run.versions else None]
    if any(parts):
        said.append(", ".join(part for part in parts if part))
    if run.noise_scale is not None:
        said.append(_noise(run.noise_scale))
    if run.profiler_cost is not None:
        said.append(_recording(run.profiler_cost))
    return said


def _noise(noise: NoiseScale) -> str:
    if noise.rank_batches is None:
        return f"no gradient noise scale: {noise.problem}"
    return (
        f"gradient noise scale: {noise.rank_batches:,.3g} batches of a rank's step; `stepscope predict --world-size` has what a "
        "larger global batch brings"
    )


def _recording(cost: ProfilerCost) -> str:
    """What recording did to a step, as far as the steps tell it."""
    if cost.ratio_ci is None:
        return f"a recorded step took {cost.ratio:.2f} times as long as an unrecorded one"
    low, high = cost.ratio_ci
    interval = f"(95 % interval {low:.2f} to {high:.2f})"
    if low <= 1 <= high:
        return f"what recording cost is lost in noise: a recorded step took {cost.ratio:.2f} times as long {interval}"
    return f"a recorded step took {cost.ratio:.2f} times as long as an unrecorded one {interval}"
