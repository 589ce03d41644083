"""Runs the ranks' programs together, to the nanosecond.

Every rank is a coroutine that runs its program in order and stops where it needs the end of a collective whose last rank
has not arrived yet. A task's times follow from its launch, from the tasks that it comes after and, for a collective, from
the other ranks, so no rank needs to know what time it is elsewhere, and the order in which ranks are run changes nothing.
"""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Generator, Sequence
from dataclasses import dataclass, replace

from stepscope_workloads.simulate.causes import Contention, SingleHardwareQueue, SlowLink
from stepscope_workloads.simulate.job import NO_WIRE, Job
from stepscope_workloads.simulate.program import COLLECTIVE, Begin, Block, Busy, Call, Program, Task
from stepscope_workloads.simulate.step import programs_of

UNKNOWN = -1


@dataclass(slots=True)
class Execution:
    """One rank's run in true time, ns from the start of the job.

    clock: before each instruction, and at the very end; start, end: of each task.
    """

    rank: int
    program: Program
    clock: array[int]
    start: array[int]
    end: array[int]

    def calls(self) -> dict[int, int]:
        """For every task, the instruction that launched it."""
        return {
            one.task: k
            for k, one in enumerate(self.program.instructions)
            if isinstance(one, Call) and one.task is not None
        }


@dataclass(slots=True)
class _Meeting:
    """One collective on its way: who arrived when."""

    transfer: int
    arrived: int = 0
    last: int = 0
    root: int = UNKNOWN


def execute(job: Job, measured: Sequence[Execution] = ()) -> list[Execution]:
    """Run a job; one execution a rank. measured: take every kernel's time from these executions of the same program."""
    return _Run(job, programs_of(job), measured).finish()


def execute_without_wire(job: Job, measured: Sequence[Execution]) -> list[Execution]:
    """The same job with every transfer at zero time and nothing else changed: kernels take as long as measured."""
    return execute(replace(job, fabric=NO_WIRE), measured)


class _Run:
    """All ranks of one job under way."""

    def __init__(self, job: Job, programs: list[Program], measured: Sequence[Execution]) -> None:
        self._job = job
        first = programs[0]
        self._meetings = [_Meeting(transfer_of(job, first.tasks[index])) for index in first.collectives]
        for program in programs:
            assert len(program.collectives) == len(first.collectives), "every rank joins every collective"
        self.executions = [_blank(rank, program) for rank, program in enumerate(programs)]
        self._waiting: dict[int, list[int]] = {}
        self._ready = deque(range(job.ranks))
        self._coroutines = [
            _Rank(self, job, one, measured[rank] if measured else None).run()
            for rank, one in enumerate(self.executions)
        ]

    def finish(self) -> list[Execution]:
        """Run every rank to its end."""
        done = 0
        while self._ready:
            rank = self._ready.popleft()
            needed = next(self._coroutines[rank], None)
            if needed is None:
                done += 1
            elif self._known(needed, rank):
                self._ready.append(rank)
            else:
                self._waiting.setdefault(needed, []).append(rank)
        assert done == len(self.executions), "ranks wait for each other"
        return self.executions

    def _known(self, number: int, rank: int) -> bool:
        one = self.executions[rank]
        return one.end[one.program.collectives[number]] != UNKNOWN

    def arrive(self, rank: int, number: int, time: int) -> None:
        """A rank's part of a collective has started: it can move data when all are there (a broadcast: when rank 0 is)."""
        meeting = self._meetings[number]
        meeting.arrived += 1
        meeting.last = max(meeting.last, time)
        if rank == 0:
            meeting.root = time
        if self._kind(number) == "broadcast":
            self._end_broadcast(number, meeting)
        elif meeting.arrived == len(self.executions):
            for one in self.executions:
                one.end[one.program.collectives[number]] = meeting.last + meeting.transfer
            self._ready.extend(self._waiting.pop(number, ()))

    def _end_broadcast(self, number: int, meeting: _Meeting) -> None:
        if meeting.root == UNKNOWN:
            return
        for one in self.executions:
            task = one.program.collectives[number]
            if one.start[task] != UNKNOWN:
                one.end[task] = max(one.start[task], meeting.root) + meeting.transfer
        self._ready.extend(self._waiting.pop(number, ()))

    def _kind(self, number: int) -> str:
        program = self.executions[0].program
        what = program.tasks[program.collectives[number]].exchange
        assert what is not None
        return what.kind


def transfer_of(job: Job, task: Task) -> int:
    """The time that a collective's data takes on the job's fabric."""
    assert task.exchange is not None
    slow = job.cause(SlowLink)
    factor = slow.factor if slow else 1.0
    return round(factor * job.fabric.transfer(task.exchange.kind, task.exchange.bytes, job.ranks))


def time_alone(job: Job, rank: int, task: Task) -> int:
    """How long a kernel or copy takes on a rank when nothing runs beside it."""
    if not task.is_compute or not job.jitter:
        return task.work
    return round(task.work * (1.0 + job.jitter * draw(job.seed, rank, task.key)))


def _blank(rank: int, program: Program) -> Execution:
    tasks = [UNKNOWN] * len(program.tasks)
    return Execution(
        rank,
        program,
        array("q", [0] * (len(program.instructions) + 1)),
        array("q", tasks),
        array("q", tasks),
    )


_Needs = Generator[int, None, None]
"""Yields the number of a collective whose end must be known before it goes on."""


class _Rank:
    """One rank under way."""

    def __init__(self, run: _Run, job: Job, execution: Execution, measured: Execution | None) -> None:
        self._run, self._job, self._one, self._measured = run, job, execution, measured
        self._number = {task: k for k, task in enumerate(execution.program.collectives)}
        self._in_order = job.cause(SingleHardwareQueue) is not None
        contention = job.cause(Contention)
        self._slower = contention.factor if contention else 1.0
        self._running: list[int] = []

    def run(self) -> _Needs:
        """The whole program."""
        one, now = self._one, 0
        for k, instruction in enumerate(one.program.instructions):
            one.clock[k] = now
            match instruction:
                case Begin(cost=cost) | Busy(cost=cost):
                    now += cost
                case Block(until=task):
                    yield from self._over((task,))
                    now = max(now, one.end[task])
                case Call():
                    if instruction.task is not None:
                        now = yield from self._launch(instruction.task, now)
                    yield from self._over(instruction.until)
                    now = max([now + instruction.cost, *(one.end[task] for task in instruction.until)])
        one.clock[len(one.program.instructions)] = now

    def _over(self, tasks: tuple[int, ...]) -> _Needs:
        for task in tasks:
            while self._one.end[task] == UNKNOWN:
                yield self._number[task]

    def _launch(self, number: int, now: int) -> Generator[int, None, int]:
        """Hand a task to the device; the time when there was room for it in the queue of launches."""
        one, depth = self._one, self._job.host.run_ahead
        task = one.program.tasks[number]
        if number >= depth:
            yield from self._over((number - depth,))
            now = max(now, one.end[number - depth])
        yield from self._over(task.after)
        start = max([now + self._job.host.latency, *(self._free(earlier, task) for earlier in task.after)])
        if self._in_order and number:
            start = max(start, one.start[number - 1])
        one.start[number] = start
        if task.kind == COLLECTIVE:
            self._running.append(number)
            self._run.arrive(one.rank, self._number[number], start)
        elif self._measured:
            one.end[number] = start + self._measured.end[number] - self._measured.start[number]
        elif task.is_compute and self._slower > 1.0:
            one.end[number] = yield from self._end_beside_collectives(number, start)
        else:
            one.end[number] = start + time_alone(self._job, one.rank, task)
        return now

    def _free(self, earlier: int, task: Task) -> int:
        """When a task may start for all that an earlier one demands."""
        gap = self._job.gap if self._one.program.tasks[earlier].stream == task.stream else 0
        return self._one.end[earlier] + gap

    def _end_beside_collectives(self, number: int, start: int) -> Generator[int, None, int]:
        """The end of a kernel that gets on more slowly while any collective of its rank runs.

        Collectives launched later wait for this kernel, so the earlier ones are all that can run beside it; they run one
        after the other.
        """
        one = self._one
        left, now = float(time_alone(self._job, one.rank, one.program.tasks[number])), float(start)
        for other in list(self._running):
            if one.start[other] >= now + left:
                continue
            yield from self._over((other,))
            if one.end[other] <= start:
                self._running.remove(other)
                continue
            alone = max(0.0, one.start[other] - now)
            now, left = now + alone, left - alone
            beside = min(max(0.0, one.end[other] - now), left * self._slower)
            now, left = now + beside, left - beside / self._slower
        return round(now + left)


_MASK = (1 << 64) - 1


def draw(seed: int, rank: int, key: int) -> float:
    """A number in [-1, 1) that depends on these three alone (the mixing steps of splitmix64)."""
    mixed = (seed * 0x9E3779B97F4A7C15 + rank * 0xBF58476D1CE4E5B9 + key * 0x94D049BB133111EB + 1) & _MASK
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        mixed = ((mixed ^ (mixed >> shift)) * factor) & _MASK
    mixed ^= mixed >> 31
    return mixed / (1 << 63) - 1.0
