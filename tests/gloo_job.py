"""Lays out steps of several gloo ranks to the microsecond, for tests of what an audit makes of them.

A program is what one rank does, told to a `Host`; all ranks run the same one and may branch on `host.rank`. Transfers go
one at a time, `latency` and `per_element` us long, and begin when the last rank has launched them:

    def program(host: Host) -> None:
        host.forward(2000)
        host.backward([Bucket([1000, 1000])])
        host.update(500)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from build_trace import ACCUMULATE_GRAD, BACKWARD, MAIN, TraceBuilder
from stepscope.audit.basis import prepare
from stepscope.audit.case import Case
from stepscope.audit.result import Thresholds
from stepscope.audit.step import measure_step
from stepscope.ranks.pairing import pair
from stepscope.replay.graph import build
from stepscope.trace.classify import classify
from stepscope.trace.reader import read

COPY_IN = "torch::distributed::reducer::mul_out"
COPY_OUT = "torch.distributed.ddp.reducer::copy_bucket_to_grad"
NODE = BACKWARD + "AddmmBackward0"
GRADIENT_US = 20
LAUNCH_US = 5
COPY_US = 10


@dataclass
class Launched:
    """A collective as one rank launched it; us."""

    kind: str
    elements: int
    dtype: str
    at: float


@dataclass
class Host:
    """One rank at work; us. `ends` are the collectives' ends as far as they are known."""

    rank: int
    ends: Sequence[float]
    trace: TraceBuilder
    now: float = 0
    launched: list[Launched] = field(default_factory=list)

    def work(self, name: str, us: float) -> None:
        """One operator, or any other span of an operator's category."""
        self.trace.cpu_op(name, self.now, us)
        self.now += us

    def idle(self, us: float) -> None:
        """Nothing that is recorded."""
        self.now += us

    def launch(self, kind: str, elements: int, dtype: str = "float") -> int:
        """Start a collective; returns its number."""
        self.launched.append(Launched(kind, elements, dtype, self.now))
        self.now += LAUNCH_US
        return len(self.launched) - 1

    def wait(self, number: int) -> None:
        """Go on when a collective is over."""
        if number < len(self.ends):
            self.now = max(self.now, self.ends[number])

    def collective(self, kind: str, elements: int, dtype: str = "float") -> None:
        """Start a collective and wait for it."""
        self.wait(self.launch(kind, elements, dtype))

    def forward(self, us: float, inside: Callable[[Host], None] | None = None) -> None:
        """DDP's forward: something inside first, then compute."""
        start = self.now
        if inside is not None:
            inside(self)
        self.work("aten::addmm", us)
        self.trace.annotation("DistributedDataParallel.forward", start, self.now - start)

    def node(self, us: float, idle: float = 0) -> None:
        """A node of backward, and after its operator some idle time within it."""
        self.trace.cpu_op(NODE, self.now, us + idle)
        self.work("aten::mm", us)
        self.now += idle

    def gradient(self, elements: int, hook: Callable[[], None] | None = None, copied: bool = True) -> None:
        """AccumulateGrad with its copy into a bucket, and what the reducer does then."""
        start = self.now
        self.trace.cpu_op("torch::autograd::AccumulateGrad", start, 1, dims=[[elements]], types=["float"])
        if copied:
            self.trace.cpu_op(COPY_IN, start + 1, GRADIENT_US - 1)
        self.now += GRADIENT_US
        if hook is not None:
            hook()
        self.trace.cpu_op(ACCUMULATE_GRAD, start, self.now - start)

    def copy_out(self, elements: int) -> None:
        """A gradient's way back from its bucket."""
        self.trace.cpu_op(COPY_OUT, self.now, COPY_US, dims=[[elements]], types=["float"])
        self.now += COPY_US

    def update(self, us: float, inside: Callable[[Host], None] | None = None) -> None:
        """The optimizer's step: compute, then something inside."""
        start = self.now
        self.work("aten::add_", us)
        if inside is not None:
            inside(self)
        self.trace.optimizer(start, self.now - start)


def lay_out(
    program: Callable[[Host], None],
    *,
    ranks: int = 2,
    steps: int = 1,
    latency: float = 0,
    per_element: float = 1,
) -> list[TraceBuilder]:
    """Every rank's trace; steps are numbered from 5, and each begins where the one before it ended."""
    ends: list[float] = []
    while True:
        hosts = [_run(program, rank, ranks, steps, ends) for rank in range(ranks)]
        found = _transfers(hosts, latency, per_element)
        if found == ends:
            break
        ends = found
    for host in hosts:
        free = 0.0
        for one, end in zip(host.launched, ends, strict=True):
            start = max(one.at, free)
            host.trace.gloo(
                one.kind, start, end - start, elements=one.elements, dtype=one.dtype, launched=one.at
            )
            free = end
    return [host.trace for host in hosts]


def _run(program: Callable[[Host], None], rank: int, ranks: int, steps: int, ends: Sequence[float]) -> Host:
    host = Host(rank, ends, TraceBuilder(rank=rank, world_size=ranks, backend="gloo"))
    for number in range(steps):
        start = host.now
        program(host)
        host.trace.step(5 + number, start, host.now - start)
    return host


def _transfers(hosts: Sequence[Host], latency: float, per_element: float) -> list[float]:
    free, ends = 0.0, []
    for members in zip(*(host.launched for host in hosts), strict=True):
        begin = max(free, *(one.at for one in members))
        free = begin + latency + per_element * members[0].elements
        ends.append(free)
    return ends


def case_of(folder: Path, traces: Sequence[TraceBuilder]) -> Case:
    """What a detector gets of some traces."""
    recordings = [classify(read(trace.write(folder / f"rank{k}.json"))) for k, trace in enumerate(traces)]
    pairing = pair(recordings)
    parts = [
        (basis, [measure_step(basis, window) for window in basis.recording.steps.windows])
        for basis in prepare(recordings, pairing)
    ]
    numbers = {
        step.window.number
        for basis, steps in parts
        for step in steps
        if step.window.number not in basis.invalid
    }
    drawn = {number: build(recordings, pairing, number) for number in sorted(numbers)}
    graphs = {number: graph for number, graph in drawn.items() if graph is not None}
    return Case(recordings, parts, pairing, graphs, Thresholds())


def ddp(
    host: Host,
    gradients: Sequence[int],
    sent: Sequence[tuple[int, int]],
    *,
    node_us: float = 1000,
    idle: dict[int, float] | None = None,
    waits: bool = False,
) -> None:
    """A backward of one node a gradient, and DDP's reducer.

    sent: for each bucket its elements and the place of the gradient after which it is launched. idle: time lost in a
    node, by place. waits: as a hook does that waits for its own all-reduce.
    """
    numbers: list[int] = []

    def launch(place: int) -> None:
        for elements, after in sent:
            if after == place:
                numbers.append(host.launch("all_reduce", elements))
                if waits:
                    host.wait(numbers[-1])

    for place, elements in enumerate(gradients):
        host.node(node_us, (idle or {}).get(place, 0))
        host.gradient(elements, hook=lambda place=place: launch(place))  # type: ignore[misc]
    for number, (elements, _) in zip(numbers, sent, strict=True):
        host.wait(number)
        host.copy_out(elements)


__all__ = ["COPY_US", "GRADIENT_US", "LAUNCH_US", "MAIN", "Host", "case_of", "ddp", "lay_out"]
