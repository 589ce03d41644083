"""Which steps may speak for the job: warm-up and half-recorded steps are marked and kept out of the verdict."""

from __future__ import annotations

from collections import Counter

import numpy as np

from stepscope.stats import median
from stepscope.trace import roles
from stepscope.trace.recording import Recording
from stepscope.trace.steps import BY_PROFILER, Window

_HALF = 0.5
"""A step that launched less than this share of the other steps' compute was not recorded whole."""


def reasons_invalid(recording: Recording, *, static_graph: bool = False) -> dict[int, str]:
    """Step number to the reason why it is left out, for the steps that are.

    static_graph: the run says that DDP was made so; without that, later steps in more buckets show it.
    """
    windows = recording.steps.windows
    launched = _compute_counts(recording, windows)
    typical = median(sorted(launched.values())[len(launched) // 2 :]) if launched else 0.0
    buckets = Counter(op.step for op in recording.collectives if op.gradient)
    rebuilt = {op.step for op in recording.collectives if op.role == roles.REBUILD}
    reasons: dict[int, str] = {}
    for window in windows:
        number = window.number
        if number in rebuilt:
            reasons[number] = "warm-up: DDP rebuilt its buckets in this step"
        elif _is_first(recording, number):
            reasons[number] = "warm-up: the first step of the run (lazy set-up, DDP's single first bucket)"
        elif _is_static_graph_start(number, buckets, static_graph=static_graph):
            reasons[number] = "warm-up: DDP still reduces in one bucket (static_graph's first steps)"
        elif not launched[number]:
            reasons[number] = "half recorded: it launched no compute"
        elif launched[number] < _HALF * typical:
            reasons[number] = "half recorded: it launched less than half of the compute of the other steps"
        elif recording.truncated and window == windows[-1]:
            reasons[number] = "half recorded: the file ends in it"
    return reasons


def _compute_counts(recording: Recording, windows: tuple[Window, ...]) -> dict[int, int]:
    numbers, counts = np.unique(recording.compute.step, return_counts=True)
    found = dict(zip(numbers.tolist(), counts.tolist(), strict=True))
    return {window.number: int(found.get(window.number, 0)) for window in windows}


def _is_first(recording: Recording, number: int) -> bool:
    return recording.steps.found_by == BY_PROFILER and number == 0 and len(recording.collectives) > 0


def _is_static_graph_start(number: int, buckets: Counter[int], *, static_graph: bool) -> bool:
    later = [count for step, count in buckets.items() if step > 1]
    return number == 1 and buckets[number] == 1 and (min(later) > 1 if later else static_graph)
