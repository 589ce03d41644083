"""What every figure of a simulated job must be, worked out from the simulation itself.

Phase, step and purpose of every activity are known because the simulator decided them; overlap and waterfall are found by
looking at every instant between two neighbouring edges by itself. Figures are integer ns on the rank's own clock.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from typing import Any

from stepscope_workloads.simulate.engine import Execution, time_alone, transfer_of
from stepscope_workloads.simulate.job import Job
from stepscope_workloads.simulate.program import BACKWARD, Exchange, Program, Task
from stepscope_workloads.simulate.schedule import Schedule, schedules

SYNCHRONISING = frozenset({"all_reduce", "all_gather", "reduce_scatter"})
PARTS = (
    "peer_wait",
    "outside_backward",
    "host_starved",
    "device_blocked",
    "late_launch",
    "queue",
    "tail",
    "unattributed",
)


@dataclass(frozen=True, slots=True)
class _Transfer:
    """One collective on one rank: it waits in [start, wire) and moves data in [wire, end)."""

    start: int
    wire: int
    end: int
    outside: bool
    gradient: bool
    bucket: int | None


class _Cover:
    """Whether an instant lies in any of some spans."""

    def __init__(self, spans: Iterable[tuple[int, int]]) -> None:
        self.edges: list[int] = []
        for start, end in sorted(span for span in spans if span[0] < span[1]):
            if self.edges and start <= self.edges[-1]:
                self.edges[-1] = max(self.edges[-1], end)
            else:
                self.edges += [start, end]

    @property
    def length(self) -> int:
        """How much time the spans cover."""
        return sum(self.edges[1::2]) - sum(self.edges[::2])

    def __contains__(self, instant: int) -> bool:
        return bisect_right(self.edges, instant) % 2 == 1


class RankTruth:
    """The truth of one rank, its own clock applied."""

    def __init__(self, job: Job, execution: Execution, together: dict[int, Schedule]) -> None:
        self._job, self._one, self._together = job, execution, together
        self._alone = schedules(job, [execution])
        self._read = job.clock_of(execution.rank).read
        tasks = execution.program.tasks
        self._compute = sorted(
            (self._read(execution.start[k]), self._read(execution.end[k]), k)
            for k, task in enumerate(tasks)
            if task.is_compute
        )
        self._starts = [start for start, _, _ in self._compute]
        self._everything = _Cover((start, end) for start, end, _ in self._compute)
        self._busy = _Cover(
            (self._read(a), self._read(b)) for a, b in zip(execution.start, execution.end, strict=True)
        )
        calls = execution.calls()
        self._launch = [self._read(execution.clock[calls[k]]) for k in range(len(tasks))]

    def step(self, number: int, window: tuple[int, int]) -> dict[str, Any]:
        """All figures of one step, whose window on the host is given in true time."""
        transfers = list(self._transfers(number))
        backward = [
            (start, end)
            for start, end, k in self._compute
            if self._is(k, number) and self._phase(k) == BACKWARD
        ]
        gradients = [one for one in transfers if one.gradient]
        figures: dict[str, Any] = {
            "step": number,
            "collectives": len(transfers),
            "compute_ns": _Cover(
                (start, end) for start, end, k in self._compute if self._is(k, number)
            ).length,
            "backward_compute_ns": _Cover(backward).length,
            **self._in_window(self._read(window[0]), self._read(window[1])),
            **self._overlap([(one.start, one.end) for one in transfers], _Cover(backward)),
            "waterfall_ns": self._waterfall(transfers, backward, self._together.get(number)),
            "contention_ns": self._contention(number),
        }
        if gradients:
            wire = self._overlap([(one.wire, one.end) for one in gradients], _Cover(backward))
            floor = max(0, self._read(self._alone[number].end) - max(end for _, end in backward))
            grad = self._overlap([(one.start, one.end) for one in gradients], _Cover(backward))
            grad |= {"floor_ns": floor, "excess_ns": max(0, grad["exposed_ns"] - floor)}
            grad["wire_ns"] = wire.pop("comm_ns")
            figures["grad"] = grad | {f"wire_{name}": value for name, value in wire.items()}
        return figures

    def _is(self, k: int, step: int) -> bool:
        return self._one.program.tasks[k].step == step

    def _phase(self, k: int) -> str:
        return self._one.program.tasks[k].phase

    def _transfers(self, step: int) -> Iterable[_Transfer]:
        one = self._one
        for k in one.program.collectives:
            task = one.program.tasks[k]
            if task.step != step:
                continue
            what = exchange_of(task)
            end = one.end[k]
            wire = end - transfer_of(self._job, task) if what.kind in SYNCHRONISING else one.start[k]
            times = (self._read(one.start[k]), self._read(wire), self._read(end))
            yield _Transfer(*times, task.phase != BACKWARD and not what.gradient, what.gradient, task.bucket)

    def _overlap(self, spans: Sequence[tuple[int, int]], backward: _Cover) -> dict[str, int]:
        """The four figures of some communication, from every instant between two edges."""
        comm = _Cover(spans)
        found = dict.fromkeys(("comm_ns", "hidden_backward_ns", "hidden_other_ns", "exposed_ns"), 0)
        for x, y in pairwise(_edges(spans, backward.edges, self._everything.edges)):
            if x not in comm:
                continue
            found["comm_ns"] += y - x
            if x in backward:
                found["hidden_backward_ns"] += y - x
            elif x in self._everything:
                found["hidden_other_ns"] += y - x
            else:
                found["exposed_ns"] += y - x
        return found

    def _waterfall(
        self, transfers: Sequence[_Transfer], backward: Sequence[tuple[int, int]], schedule: Schedule | None
    ) -> dict[str, int]:
        """Every exposed instant under the first name that fits it."""
        comm = _Cover((one.start, one.end) for one in transfers)
        moving = _Cover((one.wire, one.end) for one in transfers)
        outside = _Cover((one.start, one.end) for one in transfers if one.outside)
        first, last = (backward[0][0], max(end for _, end in backward)) if backward else (0, 0)
        first = min([first, *(one.start for one in transfers if not one.outside)])
        spans = [(one.start, one.end) for one in transfers]
        own = [first, last, *moving.edges, *outside.edges, *self._launch]
        over = self._read(schedule.end) if schedule else last
        last_wire = self._read(schedule.last_start) if schedule else last
        own += [last_wire, over]
        found = dict.fromkeys(PARTS, 0)
        for x, y in pairwise(_edges(spans, own, self._everything.edges)):
            if x not in comm or x in self._everything:
                continue
            if x not in moving:
                name = "peer_wait"
            elif x in outside:
                name = "outside_backward"
            elif first <= x < last:
                name = "host_starved" if x < self._next_launch(x) else "device_blocked"
            elif x >= last and schedule:
                name = "late_launch" if x >= over else "queue" if x < last_wire else "tail"
            else:
                name = "unattributed"
            found[name] += y - x
        return found

    def _in_window(self, start: int, end: int) -> dict[str, int]:
        """How long a step was on the host, and how much of that the device was busy, or idle for want of launches."""
        found = {"wall_ns": end - start, "device_busy_ns": 0, "host_starved_ns": 0}
        last = self._starts[-1]
        for x, y in pairwise(_edges([(start, end)], self._busy.edges, self._everything.edges, self._launch)):
            if x in self._busy:
                found["device_busy_ns"] += y - x
            if x not in self._everything and self._starts[0] <= x < last and x < self._next_launch(x):
                found["host_starved_ns"] += y - x
        return found

    def _next_launch(self, instant: int) -> int:
        """When the next compute to start after an idle instant was launched."""
        _, _, task = self._compute[bisect_right(self._starts, instant)]
        return self._launch[task]

    def _contention(self, step: int) -> int:
        tasks, rank = self._one.program.tasks, self._one.rank
        taken = sum(self._one.end[k] - self._one.start[k] for _, _, k in self._compute if self._is(k, step))
        return taken - sum(
            time_alone(self._job, rank, tasks[k]) for _, _, k in self._compute if self._is(k, step)
        )


def _edges(spans: Sequence[tuple[int, int]], *others: Iterable[int]) -> list[int]:
    """All edges from the first start to the last end of some spans, in order."""
    if not spans:
        return []
    low, high = min(start for start, _ in spans), max(end for _, end in spans)
    edges = {edge for span in spans for edge in span}
    for other in others:
        edges.update(edge for edge in other if low <= edge <= high)
    return sorted(edges)


def exchange_of(task: Task) -> Exchange:
    """What a collective's task moves."""
    assert task.exchange is not None
    return task.exchange


def collectives(job: Job, executions: Sequence[Execution]) -> list[dict[str, Any]]:
    """Every collective: what it is, and how long each rank waited in it and how long its data took, in true time."""
    program = executions[0].program
    return [_collective(job, executions, number, program) for number in range(len(program.collectives))]


def _collective(job: Job, executions: Sequence[Execution], number: int, program: Program) -> dict[str, Any]:
    task = program.tasks[program.collectives[number]]
    what = exchange_of(task)
    wire = transfer_of(job, task)
    found: dict[str, Any] = {
        "sequence": number + 1,
        "step": task.step,
        "kind": what.kind,
        "phase": task.phase,
        "gradient": what.gradient,
        "bytes": what.bytes,
        "bucket": task.bucket,
        "wire_ns": wire,
        "bus_gb_per_s": what.bytes / wire * _bus_factor(what.kind, job.ranks) if wire else None,
        "start_ns": [_recorded(job, one, one.start[one.program.collectives[number]]) for one in executions],
    }
    if what.kind not in SYNCHRONISING:
        return found
    starts = [one.start[one.program.collectives[number]] for one in executions]
    last = max(starts)
    return found | {"last_rank": starts.index(last), "wait_ns": [last - start for start in starts]}


def _recorded(job: Job, execution: Execution, time: int) -> int:
    """A true time as it stands in the rank's recording: on its clock, from the recording's first event."""
    read = job.clock_of(execution.rank).read
    return read(time) - read(0)


def _bus_factor(kind: str, ranks: int) -> float:
    """Bytes on the busiest link over the size of the message (METRICS 3)."""
    return {"all_reduce": 2.0, "broadcast": ranks / (ranks - 1)}.get(kind, 1.0) * (ranks - 1) / ranks


def stragglers(found: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Ranks that the others waited for, the one that cost most first: how often last, and by how much the median rank waited."""
    waited = [one for one in found if "wait_ns" in one and len(one["wait_ns"]) > 1]
    lateness: Counter[int] = Counter()
    for one in waited:
        others = [wait for rank, wait in enumerate(one["wait_ns"]) if rank != one["last_rank"]]
        lateness[one["last_rank"]] += round(median(others))
    last = Counter(one["last_rank"] for one in waited)
    return [
        {"rank": rank, "last": last[rank], "joined": len(waited), "total_ns": total}
        for rank, total in lateness.most_common()
    ]
