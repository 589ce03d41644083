"""What is simulated: a model as kernel times and parameter sizes, a host, a fabric, ranks on hosts, and what is wrong.

Times are integer nanoseconds and sizes are element counts unless a name says otherwise.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TypeVar

from stepscope_workloads.simulate.causes import Cause, LaunchBound

US = 1_000
MS = 1_000_000
MIB = 1024 * 1024
BYTES_OF = {"Float": 4, "BFloat16": 2, "Half": 2, "Int": 4, "Long": 8}

_C = TypeVar("_C", bound=Cause)


@dataclass(frozen=True, slots=True)
class Layer:
    """One layer: its kernels in forward and backward, in order, and the elements of each of its parameters."""

    name: str
    forward: tuple[int, ...]
    backward: tuple[int, ...]
    parameters: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Model:
    """Layers from first to last, what the optimizer takes for all of them, and the type of parameters and gradients."""

    layers: tuple[Layer, ...]
    optimizer: int = 900 * US
    loss: int = 60 * US
    dtype: str = "Float"

    @property
    def elements(self) -> int:
        """All parameters together."""
        return sum(sum(layer.parameters) for layer in self.layers)


def uniform(
    layers: int = 8,
    kernel: int = 400 * US,
    parameters: int = 4_000_000,
    kernels: int = 2,
    backward: int = 800 * US,
    head: int = 0,
) -> Model:
    """Equal layers, each with a weight and a bias of a thousandth of it, and a last one of `head` parameters if any."""
    one = Layer("layer", (kernel,) * kernels, (backward,) * kernels, (parameters, parameters // 1000))
    body = tuple(replace(one, name=f"layers.{k}") for k in range(layers))
    return Model((*body, Layer("head", (kernel,), (backward,), (head,))) if head else body)


@dataclass(frozen=True, slots=True)
class Host:
    """What a rank's CPU takes.

    launch: one runtime launch call; operator: dispatching one operator; python: Python between layers in forward; latency:
    from a launch call to the earliest start of its kernel; run_ahead: launches that may be outstanding before a launch call
    blocks; reads_loss: the loop reads its loss at the end of every step, so that the host can't run into the next one.
    """

    launch: int = 5 * US
    operator: int = 3 * US
    python: int = 15 * US
    latency: int = 6 * US
    run_ahead: int = 1024
    data: int = 150 * US
    reads_loss: bool = True


@dataclass(frozen=True, slots=True)
class Fabric:
    """How long a transfer takes once the last rank is there.

    Rings: alpha ns a hop and B gigabytes (1e9) a second on the slowest link; or `fixed` ns for every collective alike.
    """

    alpha: int = 5 * US
    gb_per_s: float = 40.0
    fixed: int | None = None

    def transfer(self, kind: str, size: int, ranks: int) -> int:
        """Nanoseconds that `size` bytes (the larger of input and output) take among so many ranks."""
        if self.fixed is not None:
            return self.fixed
        hops = 2 * (ranks - 1) if kind == "all_reduce" else ranks - 1
        share = 1.0 if kind == "broadcast" else hops / ranks
        return round(hops * self.alpha + share * size / self.gb_per_s)


NO_WIRE = Fabric(fixed=0)
"""The fabric on which every transfer takes no time."""


@dataclass(frozen=True, slots=True)
class Clock:
    """A host's clock against true time: ahead by `offset` ns, and by `drift` more for every million that pass."""

    offset: int = 0
    drift: float = 0.0

    def read(self, time: int) -> int:
        """What the clock shows at a true time."""
        return time + self.offset + round(time * self.drift * 1e-6)


@dataclass(frozen=True, slots=True)
class Job:
    """Everything a simulation is determined by: the same job gives the same traces, to the nanosecond.

    bucket_cap: bytes; first_bucket: bytes of the first one, DDP's own rule, or None for the same cap. sharding: "ddp" or
    "fsdp" (each layer one unit). clocks: one a host, in order; hosts without one keep true time. jitter: the largest
    relative deviation of a compute kernel's time, drawn for each by seed, rank and kernel, so that taking a cause away
    changes no draw. gap: what a stream needs between two activities. first_step: the number of the first step, past the
    warm-up. sync_events: record `cuda_sync` rows. clips:
    the loop clips the gradients' norm, which reads nothing on the host. with_stack: record Python frames.
    """

    model: Model = field(default_factory=uniform)
    ranks: int = 2
    steps: int = 3
    host: Host = field(default_factory=Host)
    fabric: Fabric = field(default_factory=Fabric)
    bucket_cap: int = 25 * MIB
    first_bucket: int | None = None
    sharding: str = "ddp"
    ranks_per_host: int = 8
    clocks: tuple[Clock, ...] = ()
    jitter: float = 0.02
    gap: int = 0
    seed: int = 0
    first_step: int = 10
    causes: tuple[Cause, ...] = ()
    sync_events: bool = False
    clips: bool = False
    with_stack: bool = False

    def cause(self, kind: type[_C]) -> _C | None:
        """The first injected cause of a kind, or None."""
        return next((one for one in self.causes if isinstance(one, kind)), None)

    def all_of(self, kind: type[_C]) -> tuple[_C, ...]:
        """Every injected cause of a kind."""
        return tuple(one for one in self.causes if isinstance(one, kind))

    def without(self, cause: Cause) -> Job:
        """The same job with one cause taken away."""
        return replace(self, causes=tuple(one for one in self.causes if one is not cause))

    @property
    def operator(self) -> int:
        """What dispatching one operator takes on these hosts."""
        bound = self.cause(LaunchBound)
        return self.host.operator if bound is None else round(bound.operator_us * US)

    def host_of(self, rank: int) -> int:
        """The number of the host that a rank runs on."""
        return rank // self.ranks_per_host

    def clock_of(self, rank: int) -> Clock:
        """The clock of the host that a rank runs on."""
        host = self.host_of(rank)
        return self.clocks[host] if host < len(self.clocks) else Clock()
