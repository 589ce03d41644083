"""What can be wrong with a simulated job. Each cause has a name, the audit's id for it, and its size.

Names are the audit's cause ids wherever one id means one fault; two faults of one id have names of their own.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import ClassVar


@dataclass(frozen=True, slots=True)
class Cause:
    """One fault, injected on purpose."""

    name: ClassVar[str] = ""
    audit_id: ClassVar[str] = ""


@dataclass(frozen=True, slots=True)
class HostSync(Cause):
    """`.item()`: the host reads a value from the device and can't run ahead.

    where: "forward" (after every layer), "between" forward and backward, or "backward" (a hook after every layer).
    times: how many reads, spread over the layers.
    """

    name: ClassVar[str] = "host-sync"
    audit_id: ClassVar[str] = "host-sync"
    where: str = "backward"
    times: int = 1


@dataclass(frozen=True, slots=True)
class GradClipSync(Cause):
    """The gradients' norm is computed after backward and read on the host before the optimizer."""

    name: ClassVar[str] = "grad-clip-sync"
    audit_id: ClassVar[str] = "grad-clip-sync"


@dataclass(frozen=True, slots=True)
class SingleHardwareQueue(Cause):
    """CUDA_DEVICE_MAX_CONNECTIONS=1: work starts in the order of its launch, whatever its stream.

    It costs where a collective that stands behind another one holds up the compute launched after it: behind a large first
    bucket, or with FSDP's prefetch.
    """

    name: ClassVar[str] = "single-hardware-queue"
    audit_id: ClassVar[str] = "single-hardware-queue"


@dataclass(frozen=True, slots=True)
class PageableCopy(Cause):
    """The batch comes from pageable memory: a slow copy on the compute stream that blocks the host until it is over."""

    name: ClassVar[str] = "pageable-copy"
    audit_id: ClassVar[str] = "pageable-copy"
    ms: float = 2.0


@dataclass(frozen=True, slots=True)
class LaunchBound(Cause):
    """Dispatching an operator takes this long, so that the device waits for the host."""

    name: ClassVar[str] = "launch-bound"
    audit_id: ClassVar[str] = "launch-bound"
    operator_us: float = 600.0


@dataclass(frozen=True, slots=True)
class ComputeStream(Cause):
    """Collectives are launched on the stream of the compute."""

    name: ClassVar[str] = "collective-on-compute-stream"
    audit_id: ClassVar[str] = "collective-on-compute-stream"


@dataclass(frozen=True, slots=True)
class WaitEdge(Cause):
    """The compute stream waits for every bucket's collective right after its launch."""

    name: ClassVar[str] = "wait-edge-in-backward"
    audit_id: ClassVar[str] = "wait-edge-in-backward"


@dataclass(frozen=True, slots=True)
class BlockingEnvironment(Cause):
    """The host blocks inside every communication operator until its collective is over (TORCH_NCCL_BLOCKING_WAIT=1)."""

    name: ClassVar[str] = "blocking-environment"
    audit_id: ClassVar[str] = "blocking-environment"


@dataclass(frozen=True, slots=True)
class Contention(Cause):
    """Compute kernels take `factor` times as long while a collective runs."""

    name: ClassVar[str] = "contention"
    audit_id: ClassVar[str] = "contention"
    factor: float = 1.3


@dataclass(frozen=True, slots=True)
class Straggler(Cause):
    """One rank is slower in a phase, "forward", "backward" or "update".

    by: "host" (busy on the CPU before the phase's first launch) or "compute" (its kernels take so much longer in all).
    """

    name: ClassVar[str] = "straggler"
    audit_id: ClassVar[str] = "straggler"
    rank: int = 0
    ms: float = 5.0
    phase: str = "forward"
    by: str = "compute"


@dataclass(frozen=True, slots=True)
class InputSkew(Cause):
    """One rank waits for its batch."""

    name: ClassVar[str] = "input-skew"
    audit_id: ClassVar[str] = "input-skew"
    rank: int = 0
    ms: float = 5.0


@dataclass(frozen=True, slots=True)
class OneBucket(Cause):
    """All gradients are reduced in one bucket."""

    name: ClassVar[str] = "bucket-too-large"
    audit_id: ClassVar[str] = "bucket-too-large"


@dataclass(frozen=True, slots=True)
class SmallBuckets(Cause):
    """The bucket cap is so small that every parameter, or nearly, makes a bucket of its own."""

    name: ClassVar[str] = "bucket-too-small"
    audit_id: ClassVar[str] = "bucket-too-small"
    cap_kb: float = 1.0


@dataclass(frozen=True, slots=True)
class LateParameter(Cause):
    """A parameter of the first bucket gets its gradient last; buckets are launched in order, so all wait for it."""

    name: ClassVar[str] = "late-parameter"
    audit_id: ClassVar[str] = "late-parameter"


@dataclass(frozen=True, slots=True)
class ForwardBroadcast(Cause):
    """DDP broadcasts the buffers at the start of every forward."""

    name: ClassVar[str] = "forward-collectives"
    audit_id: ClassVar[str] = "forward-collectives"
    count: int = 2
    elements: int = 2_000_000


@dataclass(frozen=True, slots=True)
class SyncBatchNorm(Cause):
    """So many layers exchange statistics in forward and in backward, and wait for them."""

    name: ClassVar[str] = "sync-batch-norm"
    audit_id: ClassVar[str] = "forward-collectives"
    layers: int = 4
    channels: int = 512


@dataclass(frozen=True, slots=True)
class MetricReduce(Cause):
    """So many one-element all-reduces between forward and backward, each waited for."""

    name: ClassVar[str] = "extra-collectives"
    audit_id: ClassVar[str] = "extra-collectives"
    count: int = 4


@dataclass(frozen=True, slots=True)
class FsdpPrefetchOff(Cause):
    """FSDP gathers a unit's parameters only when the compute before it is over."""

    name: ClassVar[str] = "fsdp-prefetch"
    audit_id: ClassVar[str] = "fsdp-prefetch"


@dataclass(frozen=True, slots=True)
class SlowLink(Cause):
    """Every transfer takes so many times as long."""

    name: ClassVar[str] = "link-bound"
    audit_id: ClassVar[str] = "link-bound"
    factor: float = 6.0


CAUSES: dict[str, type[Cause]] = {
    kind.name: kind
    for kind in (
        HostSync,
        GradClipSync,
        SingleHardwareQueue,
        PageableCopy,
        LaunchBound,
        ComputeStream,
        WaitEdge,
        BlockingEnvironment,
        Contention,
        Straggler,
        InputSkew,
        OneBucket,
        SmallBuckets,
        LateParameter,
        ForwardBroadcast,
        SyncBatchNorm,
        MetricReduce,
        FsdpPrefetchOff,
        SlowLink,
    )
}
"""Every cause by its name."""

_CHOICES = {
    "where": ("forward", "between", "backward"),
    "phase": ("forward", "backward", "update"),
    "by": ("host", "compute"),
}


def parse(text: str) -> Cause:
    """A cause from words: "straggler" or "straggler:rank=3,ms=20,phase=backward"; ValueError says what is wrong."""
    name, _, settings = text.partition(":")
    if name not in CAUSES:
        raise ValueError(f"no cause is called {name!r}; there are {', '.join(CAUSES)}")
    usual = CAUSES[name]()
    kinds = {one.name: type(getattr(usual, one.name)) for one in fields(usual)}
    given: dict[str, object] = {}
    for setting in filter(None, settings.split(",")):
        key, _, value = setting.partition("=")
        if key not in kinds:
            raise ValueError(f"{name} has no {key!r}; it has {', '.join(kinds) or 'no settings'}")
        try:
            given[key] = kinds[key](value)
        except ValueError:
            raise ValueError(f"{name}: {key}={value} is no {kinds[key].__name__}") from None
        if key in _CHOICES and value not in _CHOICES[key]:
            raise ValueError(f"{name}: {key} is one of {', '.join(_CHOICES[key])}, not {value!r}")
    return CAUSES[name](**given)
