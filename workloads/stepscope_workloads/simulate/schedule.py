"""When buckets were ready, and the schedules that could have been: one rank's alone, and that of all ranks together.

One rank's alone gives its floor (METRICS 4). Whether a transfer after backward was launched late is another question: had
every rank launched every bucket when it was ready, a rank would still have had to wait for the last of them. So the time
by which everything would have been over comes from all ranks together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from stepscope_workloads.simulate.engine import Execution, transfer_of
from stepscope_workloads.simulate.job import Job

Bucket = tuple[int, int]
"""Number of the step, number of the bucket."""


@dataclass(frozen=True, slots=True)
class Schedule:
    """When a step's last bucket would have been on the wire, in true time."""

    last_start: int
    end: int


def ready_times(execution: Execution) -> dict[Bucket, int]:
    """When each bucket's last gradient was in it, in true time."""
    ready: dict[Bucket, int] = {}
    for task, end in zip(execution.program.tasks, execution.end, strict=True):
        if task.is_compute and task.bucket is not None:
            key = (task.step, task.bucket)
            ready[key] = max(end, ready.get(key, 0))
    return ready


def schedules(job: Job, executions: Sequence[Execution]) -> dict[int, Schedule]:
    """For each step, its buckets in order, each from when all of the ranks have it ready and the one before is over."""
    ready = [ready_times(one) for one in executions]
    program = executions[0].program
    found: dict[int, Schedule] = {}
    for index in program.collectives:
        task = program.tasks[index]
        if task.bucket is None:
            continue
        start = max(one[task.step, task.bucket] for one in ready)
        if task.step in found:
            start = max(start, found[task.step].end)
        found[task.step] = Schedule(start, start + transfer_of(job, task))
    return found
