"""The profiler's own cost: recorded steps beside unrecorded steps of the same run."""

from __future__ import annotations

import statistics
from collections.abc import Iterable

from stepscope.capture.metadata import ProfilerCost, StepTime

RESAMPLES = 2000


def profiler_cost(times: Iterable[StepTime]) -> ProfilerCost | None:
    """Medians of recorded and unprofiled steps and their ratio with a 95 % bootstrap interval; None where a side has no step.

    Device times where there are any, else wall times. The interval comes from resampling the steps of both sides (percentile
    bootstrap, fixed seed): with three steps a side it is little more than the range of what was seen.
    """
    by_kind: dict[str, list[float]] = {}
    for time in times:
        by_kind.setdefault(time.kind, []).append(time.wall_ms if time.device_ms is None else time.device_ms)
    plain, recorded = by_kind.get("unprofiled"), by_kind.get("recorded")
    if not plain or not recorded:
        return None
    import numpy as np

    random = np.random.default_rng(0)
    resampled = (np.median(random.choice(side, (RESAMPLES, len(side))), axis=1) for side in (recorded, plain))
    low, high = np.percentile(np.divide(*resampled), (2.5, 97.5))
    plain_ms, recorded_ms = statistics.median(plain), statistics.median(recorded)
    return ProfilerCost(
        unprofiled_ms=plain_ms,
        recorded_ms=recorded_ms,
        ratio=recorded_ms / plain_ms,
        ratio_ci=(float(low), float(high)),
        unprofiled_steps=len(plain),
        recorded_steps=len(recorded),
    )
