"""A simulated job, its documents and its truth: the way in for tests and for the command."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from functools import cached_property
from pathlib import Path
from typing import Any

from stepscope_workloads.simulate import kineto
from stepscope_workloads.simulate.engine import Execution, execute, execute_without_wire
from stepscope_workloads.simulate.job import Job
from stepscope_workloads.simulate.program import Begin, End
from stepscope_workloads.simulate.schedule import Schedule, schedules
from stepscope_workloads.simulate.truth import RankTruth, collectives, stragglers

_TO_SPEED = 1
"""gzip level: traces of a thousand ranks are gigabytes."""


class Simulation:
    """One job, run once; everything else is read off that run."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.executions = execute(job)

    def documents(self) -> Iterator[dict[str, Any]]:
        """The Kineto document of each rank, one at a time."""
        return (kineto.document(self.job, one) for one in self.executions)

    @cached_property
    def _without_wire(self) -> list[Execution]:
        return execute_without_wire(self.job, self.executions)

    @cached_property
    def _schedules(self) -> dict[int, Schedule]:
        return schedules(self.job, self.executions)

    def truth(self) -> dict[str, Any]:
        """Every figure; times in ns. A rank's own are on its host's clock, durations of steps are true time."""
        found = collectives(self.job, self.executions)
        return {
            "step_ns": mean_step(self.job, self.executions),
            "cost_ns": mean_step(self.job, self.executions) - mean_step(self.job, self._without_wire),
            "causes": self._causes(),
            "ranks": [self._rank(rank) for rank in range(self.job.ranks)],
            "collectives": found,
            "stragglers": stragglers(found),
            "clocks": self._clocks(),
        }

    def _causes(self) -> list[dict[str, Any]]:
        """Each injected cause with its price: what the mean step gets shorter by when it alone is taken away."""
        step = mean_step(self.job, self.executions)
        return [
            {
                "cause": one.name,
                "audit_id": one.audit_id,
                "price_ns": step - mean_step(self.job, execute(self.job.without(one))),
                "settings": asdict(one),
            }
            for one in self.job.causes
        ]

    def _clocks(self) -> list[dict[str, Any]]:
        hosts = range(self.job.host_of(self.job.ranks - 1) + 1)
        clocks = [self.job.clock_of(host * self.job.ranks_per_host) for host in hosts]
        return [
            {"host": f"node{host}", "offset_ns": clock.offset, "drift_ppm": clock.drift}
            for host, clock in zip(hosts, clocks, strict=True)
        ]

    def _rank(self, rank: int) -> dict[str, Any]:
        one, free = self.executions[rank], self._without_wire[rank]
        read = RankTruth(self.job, one, self._schedules)
        windows, windows_free = host_windows(one), host_windows(free)
        took, took_free = step_times(one), step_times(free)
        steps = [
            {
                **read.step(step, window),
                "wall_cost_ns": _length(window) - _length(windows_free[step]),
                "step_ns": took[step],
                "cost_ns": took[step] - took_free[step],
            }
            for step, window in windows.items()
        ]
        return {"rank": rank, "host": f"node{self.job.host_of(rank)}", "steps": steps}


def mean_step(job: Job, executions: Sequence[Execution]) -> int:
    """The job's time over its steps: until the last rank's last device work is over."""
    return max(max(one.end) for one in executions) // job.steps


def step_times(execution: Execution) -> dict[int, int]:
    """How long each step took the device: from the end of the step before to the end of its own last work."""
    ends: dict[int, int] = {}
    for task, end in zip(execution.program.tasks, execution.end, strict=True):
        ends[task.step] = max(end, ends.get(task.step, 0))
    before = [0, *ends.values()]
    return {step: end - start for (step, end), start in zip(ends.items(), before, strict=False)}


def host_windows(execution: Execution) -> dict[int, tuple[int, int]]:
    """Begin and end of each step's `ProfilerStep#k` on the host, in true time."""
    found: dict[int, tuple[int, int]] = {}
    for k, one in enumerate(execution.program.instructions):
        if isinstance(one, End):
            begin = execution.program.instructions[one.begin]
            assert isinstance(begin, Begin)
            name, _, number = begin.name.partition("#")
            if name == "ProfilerStep":
                found[int(number)] = (execution.clock[one.begin], execution.clock[k])
    return found


def _length(window: tuple[int, int]) -> int:
    return window[1] - window[0]


def write(simulation: Simulation, folder: Path) -> Iterator[Path]:
    """Write every rank's trace and then `truth.json` into a folder; the paths as they are written.

    Raises FileExistsError if the folder holds traces or a truth already.
    """
    if folder.is_dir() and any(folder.iterdir()):
        raise FileExistsError(f"{folder} is not empty: name a new folder")
    folder.mkdir(parents=True, exist_ok=True)
    for execution, document in zip(simulation.executions, simulation.documents(), strict=True):
        path = folder / kineto.file_name(execution)
        path.write_bytes(gzip.compress(json.dumps(document).encode(), _TO_SPEED))
        yield path
    truth = folder / "truth.json"
    truth.write_text(json.dumps(simulation.truth(), indent=1) + "\n", "utf-8")
    yield truth
