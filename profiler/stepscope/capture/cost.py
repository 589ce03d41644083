"""The profiler's own cost: recorded steps beside unrecorded steps of the same run."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

import numpy as np

from stepscope.capture.metadata import ProfilerCost

RESAMPLES = 2000


def profiler_cost(unprofiled_ms: Sequence[float], recorded_ms: Sequence[float]) -> ProfilerCost | None:
    """Medians of both and their ratio with a 95 % bootstrap interval; None where one of them has no step.

    The interval comes from resampling the steps of both sides (percentile bootstrap, fixed seed): with three steps a side it is
    little more than the range of what was seen.
    """
    if not unprofiled_ms or not recorded_ms:
        return None
    plain, recorded = np.asarray(unprofiled_ms, dtype=float), np.asarray(recorded_ms, dtype=float)
    random = np.random.default_rng(0)
    ratios = np.median(random.choice(recorded, (RESAMPLES, recorded.size)), axis=1) / np.median(
        random.choice(plain, (RESAMPLES, plain.size)), axis=1
    )
    low, high = np.percentile(ratios, (2.5, 97.5))
    return ProfilerCost(
        unprofiled_ms=statistics.median(unprofiled_ms),
        recorded_ms=statistics.median(recorded_ms),
        ratio=statistics.median(recorded_ms) / statistics.median(unprofiled_ms),
        ratio_ci=(float(low), float(high)),
        unprofiled_steps=len(unprofiled_ms),
        recorded_steps=len(recorded_ms),
    )
