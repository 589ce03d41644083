"""Times of training steps between the ends of optimizer steps, by the host's clock and, on a GPU, by device events."""

from __future__ import annotations

import itertools
import time
from collections import deque
from dataclasses import dataclass

import torch

from stepscope.capture.metadata import StepTime

KEPT = 1000
"""Steps remembered per optimizer; a recording that has to wait for room may wait for long."""


@dataclass(frozen=True)
class _Mark:
    """The end of a step and the beginning of the next; what lies between is the recorder's own work."""

    step: int
    end_ns: int
    begin_ns: int
    end_event: torch.cuda.Event | None
    begin_event: torch.cuda.Event | None


class StepTimer:
    """Marks the ends of steps, for each optimizer apart, until it is known which of them ends a training step."""

    def __init__(self) -> None:
        self._marks: dict[int, deque[_Mark]] = {}

    def now(self) -> tuple[int, torch.cuda.Event | None]:
        """The host's time in ns, and an event on the current stream where there is one."""
        return time.perf_counter_ns(), _event()

    def mark(self, key: int, step: int, end: tuple[int, torch.cuda.Event | None]) -> None:
        """Note that step `step` of optimizer `key` ended at `end` (a value of `now`), and that the next begins now."""
        begin_ns, begin_event = self.now() if end[1] is not None else (time.perf_counter_ns(), None)
        self._marks.setdefault(key, deque(maxlen=KEPT)).append(
            _Mark(step, end[0], begin_ns, end[1], begin_event)
        )

    def times(self, key: int, kinds: dict[int, str]) -> list[StepTime]:
        """The steps of optimizer `key` after its first; those not in `kinds` are unprofiled. Waits for the device."""
        marks = list(self._marks.get(key, ()))
        return [
            StepTime(
                step=mark.step,
                wall_ms=(mark.end_ns - before.begin_ns) / 1e6,
                device_ms=_elapsed_ms(before.begin_event, mark.end_event),
                kind=kinds.get(mark.step, "unprofiled"),
            )
            for before, mark in itertools.pairwise(marks)
        ]


def _event() -> torch.cuda.Event | None:
    if not torch.cuda.is_initialized():
        return None
    event = torch.cuda.Event(enable_timing=True)
    event.record()
    return event


def _elapsed_ms(begin: torch.cuda.Event | None, end: torch.cuda.Event | None) -> float | None:
    if begin is None or end is None:
        return None
    end.synchronize()
    return float(begin.elapsed_time(end))
