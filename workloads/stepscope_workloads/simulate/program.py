"""A rank's program: what its host does, in order, and the device work that this launches.

The host runs one instruction after the other; each takes its time, and some block until device work is over. Main thread
and autograd thread take turns (the main thread sleeps in `backward()`), so they are one program whose instructions name
their thread. Device work is fixed by the launches alone: each task knows which earlier tasks it comes after.
"""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from stepscope_workloads.simulate.job import BYTES_OF, US

MAIN, AUTOGRAD = "main", "autograd"
COMPUTE, COMM = 7, 20
"""Stream numbers."""

Arguments = dict[str, Any]
"""An event's `args`."""

KERNEL, MEMCPY, COLLECTIVE = "kernel", "gpu_memcpy", "collective"
FORWARD, BACKWARD, OPTIMIZER = "forward", "backward", "optimizer"


@dataclass(frozen=True, slots=True)
class Begin:
    """A span begins on a thread and ends at its `End`; getting into it takes `cost`."""

    name: str
    category: str
    thread: str
    args: Arguments
    cost: int


@dataclass(frozen=True, slots=True)
class End:
    """The span that began at instruction `begin` ends."""

    begin: int


@dataclass(frozen=True, slots=True)
class Busy:
    """The host is busy with something that leaves no event."""

    cost: int


@dataclass(frozen=True, slots=True)
class Call:
    """A runtime call: launches `task` if there is one, and returns when all of `until` are over on the device.

    record: for a wait of `stream`, the `cudaEventRecord` it waits for: its instruction and its stream.
    """

    name: str
    thread: str
    cost: int
    task: int | None = None
    until: tuple[int, ...] = ()
    stream: int | None = None
    record: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class Block:
    """The host waits, without a runtime call, until a task is over on the device."""

    until: int


Instruction = Begin | End | Busy | Call | Block


@dataclass(frozen=True, slots=True)
class Exchange:
    """What a collective moves: its kind, NCCL's and the operator's names, elements in and out on one rank, what for."""

    kind: str
    name: str
    operator: str
    annotation: str
    kernel: str
    elements_in: int
    elements_out: int
    dtype: str
    gradient: bool

    @property
    def bytes(self) -> int:
        """The larger of input and output."""
        return max(self.elements_in, self.elements_out) * BYTES_OF[self.dtype]


def exchange(
    kind: str, elements_in: int, elements_out: int, dtype: str = "Float", gradient: bool = False
) -> Exchange:
    """A collective of a kind, with the names that torch and NCCL give it."""
    name, operator, annotation, kernel = {
        "all_reduce": ("allreduce", "c10d::allreduce_", "nccl:all_reduce", "AllReduce_Sum_f32_RING_LL"),
        "broadcast": ("broadcast", "c10d::broadcast_", "nccl:broadcast", "Broadcast_RING_LL"),
        "all_gather": (
            "_allgather_base",
            "c10d::_allgather_base_",
            "nccl:_all_gather_base",
            "AllGather_RING_LL",
        ),
        "reduce_scatter": (
            "_reduce_scatter_base",
            "c10d::_reduce_scatter_base_",
            "nccl:_reduce_scatter_base",
            "ReduceScatter_Sum_f32_RING_LL",
        ),
    }[kind]
    full = f"ncclDevKernel_{kernel}(ncclDevKernelArgsStorage<4096ul>)"
    return Exchange(kind, name, operator, annotation, full, elements_in, elements_out, dtype, gradient)


@dataclass(frozen=True, slots=True)
class Task:
    """One piece of device work. `work` is its time alone in ns (a collective's comes from the fabric).

    after: earlier tasks that must be over; key: identifies it among the variants of a job, for draws; bucket: for a
    gradient's copy the bucket that it goes into, for a bucket's collective its number.
    """

    name: str
    kind: str
    stream: int
    work: int
    phase: str
    step: int
    after: tuple[int, ...]
    key: int
    exchange: Exchange | None = None
    bucket: int | None = None
    bytes: int = 0

    @property
    def is_compute(self) -> bool:
        """Whether it computes: every kernel that is no collective."""
        return self.kind == KERNEL


@dataclass(slots=True)
class Program:
    """Instructions, tasks in launch order, and which of the tasks are collectives."""

    instructions: list[Instruction] = field(default_factory=list)
    tasks: list[Task] = field(default_factory=list)
    collectives: list[int] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Event:
    """A recorded event: its `cudaEventRecord`, its stream, and the tasks that it stands for."""

    instruction: int
    stream: int
    tasks: tuple[int, ...]


class Builder:
    """Writes a program down, keeping track of streams, events, the phase and the step."""

    def __init__(self, operator: int, launch: int) -> None:
        self.program = Program()
        self.thread, self.phase, self.step = MAIN, FORWARD, 0
        self._operator, self._launch = operator, launch
        self._tail: dict[int, tuple[int, ...]] = {}
        self._seen: Counter[str] = Counter()

    @contextmanager
    def span(
        self, name: str, category: str = "cpu_op", cost: int | None = None, args: Arguments | None = None
    ) -> Iterator[None]:
        """A span around whatever is added inside; getting into an operator takes the host's time for one."""
        begin = len(self.program.instructions)
        own = self._operator if cost is None else cost
        self.program.instructions.append(Begin(name, category, self.thread, args or {}, own))
        yield
        self.program.instructions.append(End(begin))

    @contextmanager
    def on(self, thread: str, phase: str) -> Iterator[None]:
        """Whatever is added inside is done by a thread, in a phase."""
        before = self.thread, self.phase
        self.thread, self.phase = thread, phase
        yield
        self.thread, self.phase = before

    def busy(self, cost: int) -> None:
        """The host is busy for a while."""
        if cost:
            self.program.instructions.append(Busy(cost))

    def call(self, name: str, cost: int = US) -> None:
        """A runtime call of no consequence."""
        self.program.instructions.append(Call(name, self.thread, cost))

    def kernel(self, name: str, work: int, *, stream: int = COMPUTE, bucket: int | None = None) -> int:
        """Launch a compute kernel."""
        return self._submit("cudaLaunchKernel", name, KERNEL, stream, work, bucket=bucket)

    def copy(self, way: str, work: int, size: int, blocking: bool = False) -> int:
        """Launch a copy on the compute stream, `way` as Kineto names it; a blocking one returns when it is over."""
        call = "cudaMemcpyAsync"
        return self._submit(call, f"Memcpy {way}", MEMCPY, COMPUTE, work, blocking=blocking, bytes_=size)

    def collective(self, what: Exchange, stream: int, bucket: int | None = None) -> int:
        """Launch a collective's kernel."""
        self.program.collectives.append(len(self.program.tasks))
        return self._submit(
            "cudaLaunchKernelExC", what.kernel, COLLECTIVE, stream, 0, what=what, bucket=bucket
        )

    def record(self, stream: int) -> Event:
        """`cudaEventRecord`."""
        self.program.instructions.append(Call("cudaEventRecord", self.thread, US, stream=stream))
        return Event(len(self.program.instructions) - 1, stream, self._tail.get(stream, ()))

    def wait(self, stream: int, event: Event) -> None:
        """`cudaStreamWaitEvent`: what is launched on the stream from now on comes after the event."""
        record = (event.instruction, event.stream)
        self.program.instructions.append(
            Call("cudaStreamWaitEvent", self.thread, US, stream=stream, record=record)
        )
        self._tail[stream] = tuple(sorted({*self._tail.get(stream, ()), *event.tasks}))

    def synchronize(self, stream: int) -> None:
        """`cudaStreamSynchronize`: the host waits for everything on the stream."""
        until = self._tail.get(stream, ())
        self.program.instructions.append(
            Call("cudaStreamSynchronize", self.thread, 2 * US, until=until, stream=stream)
        )

    def synchronize_device(self) -> None:
        """`cudaDeviceSynchronize`."""
        until = tuple(sorted({task for tail in self._tail.values() for task in tail}))
        self.program.instructions.append(Call("cudaDeviceSynchronize", self.thread, 2 * US, until=until))

    def block(self, task: int) -> None:
        """The host waits for one task."""
        self.program.instructions.append(Block(task))

    def _submit(  # noqa: PLR0913 (one place makes tasks; its callers name what they need)
        self,
        call: str,
        name: str,
        kind: str,
        stream: int,
        work: int,
        *,
        blocking: bool = False,
        what: Exchange | None = None,
        bucket: int | None = None,
        bytes_: int = 0,
    ) -> int:
        number = len(self.program.tasks)
        after = self._tail.get(stream, ())
        task = Task(
            name, kind, stream, work, self.phase, self.step, after, self._key(name), what, bucket, bytes_
        )
        self.program.tasks.append(task)
        self._tail[stream] = (number,)
        until = (number,) if blocking else ()
        self.program.instructions.append(
            Call(call, self.thread, self._launch, task=number, until=until, stream=stream)
        )
        return number

    def _key(self, name: str) -> int:
        """A number for the n-th task of a name in a phase of a step, the same in every variant of a job."""
        label = f"{self.step}/{self.phase}/{name}"
        self._seen[label] += 1
        return zlib.crc32(f"{label}/{self._seen[label]}".encode())
