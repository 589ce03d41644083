"""The runs of a sweep one after the other, until none is missing, with what there is to say meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from statistics import fmean

from stepscope.cli.launching import say
from stepscope.cli.progress import Progress, progress_bar
from stepscope.cli.sweep_runs import Stopped
from stepscope.sweep.plan import Plan, Slot, but_for_cap, pending, runs_of, stages
from stepscope.sweep.results import FAILED, MEASURED, NO_DDP, ResultsFile, RunResult
from stepscope.units import plural

Measure = Callable[[Slot, dict[str, str]], RunResult]
"""Makes the run of a slot with the candidate's knobs; raises Stopped where a signal ended it."""


class Runs:
    """Makes the runs that are missing, one after the other, and tells how far it is."""

    def __init__(self, plan: Plan, repeat: int, file: ResultsFile, results: list[RunResult]) -> None:
        self._plan = plan
        self._repeat = repeat
        self._file = file
        self._results = results
        self._candidates = plan.candidates
        self._given_up = {number for one in results if one.status == NO_DDP for number in self._alike(one)}
        """Those that need no further run. What failed before this command gets another try in it."""

    def make(self, measure: Measure) -> str | None:
        """Make all of them; returns the name of the signal that stopped it, if one did."""
        self._announce()
        with progress_bar("sweep") as progress:
            while True:
                slots, later = self._pending()
                if not slots:
                    return None
                self._tell(progress, slots[0], len(slots) + later)
                try:
                    result = measure(slots[0], self._candidates[slots[0].candidate])
                except Stopped as signal_came:
                    return signal_came.name
                self._results.append(result)
                self._file.append(result)
                if result.status == FAILED:
                    self._given_up.add(slots[0].candidate)
                elif result.status == NO_DDP:
                    self._given_up.update(self._alike(result))
                if progress is None:
                    self._log(result)

    def _alike(self, result: RunResult) -> list[int]:
        """The candidates that differ from a run in the bucket cap at most."""
        return [
            number
            for number, knobs in enumerate(self._candidates)
            if but_for_cap(knobs) == but_for_cap(result.knobs)
        ]

    def _pending(self) -> tuple[list[Slot], int]:
        times = {
            Slot(one.round, self._candidates.index(one.knobs)): one.time_ms
            for one in self._results
            if one.status != FAILED
        }
        return pending(self._plan, self._repeat, times, self._given_up)

    def _announce(self) -> None:
        """How many runs there are and how long they take, as far as that is known."""
        count, repeat = len(self._candidates), self._repeat
        planned = runs_of(stages(count, repeat, halving=self._plan.halving))
        slots, later = self._pending()
        halving = f", {planned} by successive halving" if self._plan.halving else ""
        done = f"; {len(self._results)} are there" if self._results else ""
        runs = f"{plural(count, 'candidate')} x {plural(repeat, 'round')} = {count * repeat} runs{halving}"
        say(f"{runs}, in random order (seed {self._plan.seed}), every second round reversed{done}")
        left = self._time_left(len(slots) + later)
        if slots:
            say(f"{left} to go" if left else "how long they take is known after the first one")

    def _time_left(self, runs: int) -> str:
        """By the runs that are there; empty without one."""
        seconds = [one.seconds for one in self._results]
        return f"about {_duration(runs * fmean(seconds))}" if seconds else ""

    def _tell(self, progress: Progress | None, slot: Slot, left: int) -> None:
        if progress is None:
            return
        time = self._time_left(left)
        what = f"round {slot.round + 1}, {_named(self._candidates[slot.candidate])}"
        done = len(self._results)
        progress(done, done + left, f"{what}, {time} left" if time else what)

    def _log(self, result: RunResult) -> None:
        slots, later = self._pending()
        left = len(slots) + later
        said = f"{result.time_ms:,.1f} ms" if result.status == MEASURED else result.message
        rest = f"; {self._time_left(left)} left" if left else ""
        say(
            f"run {len(self._results)}/{len(self._results) + left}, round {result.round + 1}, "
            f"{_named(result.knobs)}: {said}{rest}"
        )


def _named(knobs: dict[str, str]) -> str:
    return " ".join(f"{name}={value}" for name, value in knobs.items())


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{max(round(seconds), 1)} s"
    return f"{round(seconds / 60)} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
