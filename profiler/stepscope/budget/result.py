"""A budget as plain data: what `stepscope cost --json` holds, and all that its report sees.

Schema `stepscope.cost/1`. In JSON the unit is in the name, put there by the type: a `Time` is written as `_ms`, a `Size` as
`_bytes`, a `Rate` as `_gb_per_s` (1e9 bytes). Shares go from 0 to 1. What does not apply is absent.
"""

from __future__ import annotations

from dataclasses import dataclass

from stepscope.budget.links import Cost
from stepscope.budget.quantities import Size, Time
from stepscope.units import plural

SCHEMA = "stepscope.cost/1"


@dataclass(frozen=True, kw_only=True)
class Input:
    """One input, with its unit, the option that sets it, and where it came from.

    origin: assumed, command line, measured or recorded run. interval: 95 %, of a measured value, in its unit; without an upper
    end where the times leave it open. source: the file or run directory that it was read from.
    """

    name: str
    option: str | None
    value: float | str | tuple[float, ...]
    unit: str | None
    origin: str
    interval: tuple[float, float | None] | None = None
    source: str | None = None


@dataclass(frozen=True, kw_only=True)
class Ring:
    """The step's communication by the ring: in the buckets of a recorded run, else as one message.

    cost: a whole optimizer step. share: its total over the step's compute. bandwidth_over_latency: how many times the
    bandwidth term is the latency term. exposed_efficiency: compute over compute + all of it. ceiling: compute over compute +
    what no overlap can hide. in_backward: what falls into one micro-batch's backward; slack = window - in_backward, margin is
    the slack over the window; both are negative where it does not fit. outside_backward: the rest of the step's communication
    (parameters of ZeRO). least_exposed: what perfect overlap leaves, an optimizer step. buckets: of the recorded run, each of
    which pays the whole latency term; absent for one message.
    """

    cost: Cost
    total: Time
    share: float
    bandwidth_over_latency: float
    exposed_efficiency: float
    ceiling: float
    in_backward: Time
    outside_backward: Time
    window: Time
    slack: Time
    margin: float
    fits: bool
    least_exposed: Time
    crossover: Size
    buckets: int | None = None

    @property
    def cut(self) -> str:
        """Into what the gradients are cut, in words."""
        return "as one message" if self.buckets is None else f"in {plural(self.buckets, 'bucket')}"


@dataclass(frozen=True, kw_only=True)
class BucketRow:
    """One bucket size.

    count: ceil(S / bucket). total: one backward's communication, every bucket paying the whole latency term; over_ideal: how
    much that is over the bandwidth term alone, as a share of it. overlaps: there is more than one. bandwidth_bound: it is at
    least S*. exposed: what sticks out of backward at best, if gradients become ready at an even pace and buckets go one after
    another. covers_model: it is as large as the model or larger, hence one bucket of the model's size.
    """

    bucket: Size
    count: int
    total: Time
    latency_share: float
    over_ideal: float
    overlaps: bool
    bandwidth_bound: bool
    exposed: Time
    covers_model: bool


@dataclass(frozen=True, kw_only=True)
class Recommendation:
    """Which bucket sizes to take.

    comfortable: they are at least four times S* and leave enough buckets to overlap. Where no size does both, the range is the
    one that exposes least in the model, and `reason` says so.
    """

    low: Size
    high: Size
    low_count: int
    high_count: int
    exposed: Time
    comfortable: bool
    default_over_crossover: float
    """DDP's default of 25 MiB, in multiples of S*."""
    default_over_ideal: float
    """How much it takes over the bandwidth term alone, as a share of that."""
    default_exposed: Time
    reason: str


@dataclass(frozen=True)
class Candidate:
    """An algorithm and its cost for a size, or why it can't be taken."""

    name: str
    used_by: str
    cost: Cost | None
    refusal: str | None


@dataclass(frozen=True)
class Choice:
    """The cheapest algorithm for a size."""

    size: Size
    algorithm: str
    cost: Cost


@dataclass(frozen=True, kw_only=True)
class SizeRange:
    """The cheapest algorithm up to a size, from the end of the range before; the last one has no end."""

    algorithm: str
    up_to: Size | None


@dataclass(frozen=True, kw_only=True)
class SizeChoice:
    """One bucket size by the ring, by the better of what NCCL and RCCL choose from, and by the cheapest of all."""

    ring: Cost
    library: Choice
    cheapest: Choice


@dataclass(frozen=True, kw_only=True)
class BeyondRing:
    """All-reduce by other algorithms: for the whole message, for each bucket, and which is the cheapest where."""

    whole_message: tuple[Candidate, ...]
    sizes: tuple[SizeChoice, ...]
    library_ranges: tuple[SizeRange, ...]
    all_ranges: tuple[SizeRange, ...]


@dataclass(frozen=True, kw_only=True)
class OtherCollective:
    """Another collective of the whole message's size: by each of its algorithms."""

    collective: str
    candidates: tuple[Candidate, ...]


@dataclass(frozen=True, kw_only=True)
class StageMemory:
    """Model states of one rank under a ZeRO stage, and its traffic as a multiple of an all-reduce's."""

    stage: int
    parameters: Size
    gradients: Size
    optimizer: Size
    total: Size
    volume: float


@dataclass(frozen=True, kw_only=True)
class Accumulation:
    """More micro-batches an optimizer step, with the communication that is left to each step."""

    micro_batches: int
    compute: Time
    communication: Time
    share: float
    exposed_efficiency: float


@dataclass(frozen=True, kw_only=True)
class IntraNode:
    """The same group over the link inside a node. available: whether a node holds that many ranks.

    refusal: why there is no such link to move to, and no figures.
    """

    refusal: str | None
    ranks_per_node: int | None = None
    node_assumed: bool | None = None
    available: bool | None = None
    cost: Cost | None = None
    share: float | None = None


@dataclass(frozen=True, kw_only=True)
class Hierarchical:
    """Reduce-scatter in the node, all-reduce across nodes, all-gather in the node. refusal: why there are no figures."""

    ranks_per_node: int | None = None
    node_assumed: bool | None = None
    refusal: str | None
    nodes: int | None = None
    cost: Cost | None = None
    across: Cost | None = None
    share: float | None = None
    shared_uplink: Cost | None = None
    """The same where the ranks of a node share one link to the others."""


@dataclass(frozen=True, kw_only=True)
class Fixes:
    """What to do about it, from the same inputs."""

    accumulation: Accumulation
    intra_node: IntraNode
    hierarchical: Hierarchical


@dataclass(frozen=True, kw_only=True)
class ScalePoint:
    """The ring at another number of ranks, everything else the same, and what grew from the setting's own number.

    default_bucket: one backward's communication in buckets of 25 MiB. Growth is a ratio, absent where the setting has one
    rank. steps_ratio: optimizer steps to the same loss over those of the setting.
    """

    ranks: int
    cost: Cost
    total: Time
    share: float
    crossover: Size
    default_bucket: Time
    recommended: Recommendation
    batch_growth: float
    bandwidth_growth: float | None = None
    latency_growth: float | None = None
    global_batch: float | None = None
    over_critical: float | None = None
    steps_ratio: float | None = None


@dataclass(frozen=True, kw_only=True)
class Heuristic:
    """The bare rule: communication over half of the step is called communication-bound. A label, not a verdict."""

    label: str
    threshold: float


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """What can be defended from the arithmetic: does it fit behind backward, and how closely.

    label: communication-bound, communication-sensitive, compute-bound or "no communication". realistic: the efficiency to
    expect, low and high, a rule of thumb.
    """

    label: str
    reason: str
    realistic: tuple[float, float] | None = None


@dataclass(frozen=True, kw_only=True)
class Communication:
    """Everything that needs at least two ranks."""

    ring: Ring
    buckets: tuple[BucketRow, ...]
    recommended: Recommendation
    beyond_ring: BeyondRing
    others: tuple[OtherCollective, ...]
    fixes: Fixes


@dataclass(frozen=True, kw_only=True)
class SizeComparison:
    """Gradient collectives of one kind and size in a recorded run, and what the model says of them.

    count: how many a step. samples: how many were measured, over steps and ranks. measured: the median transfer, or the median
    duration where `waiting_included`; low and high are the quartiles. beside_transfers: share of that time in which another
    collective ran on the same rank; beside_backward: in which backward compute did. difference: model / measured - 1.
    remarks: where the two part by more than a tenth, what the recording says of it.
    """

    collective: str
    size: Size
    ranks: int
    count: int
    samples: int
    measured: Time
    measured_low: Time
    measured_high: Time
    waiting_included: bool
    beside_transfers: float
    beside_backward: float | None
    model: Time | None
    difference: float | None
    in_valid_range: bool | None
    remarks: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class StepComparison:
    """A step's gradient communication: measured (median over steps of the mean over ranks), and by the model.

    communication: the time in which any of it ran, so that two at once count once; waiting for other ranks is in it only where
    `waiting_included`. The model has gradients ready at an even pace over backward, and one transfer after another.
    """

    waiting_included: bool
    communication: Time
    hidden: Time
    exposed: Time
    floor: Time | None
    model_communication: Time | None = None
    model_hidden: Time | None = None
    model_exposed: Time | None = None
    difference: float | None = None


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """The model beside a recorded run. label and reason: the measured verdict, which no model replaces."""

    run: str
    label: str
    reason: str
    steps: int
    model: str | None
    """Where the model's alpha and B are from."""
    step: StepComparison
    sizes: tuple[SizeComparison, ...]
    remarks: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Budget:
    """All of it. communication and heuristic are absent for one rank."""

    schema: str = SCHEMA
    stepscope: str
    """Version that made it."""
    verdict: Verdict
    heuristic: Heuristic | None
    ranks: int
    zero: int
    accumulate: int
    message: Size
    step: Time
    """Compute of an optimizer step."""
    global_batch: float | None
    critical_batch: float | None
    communication: Communication | None
    memory: tuple[StageMemory, ...]
    scaling: tuple[ScalePoint, ...]
    inputs: tuple[Input, ...]
    limits: tuple[str, ...]
    """What the model leaves out, and how to measure instead."""
    warning: str | None = None
    """Why none of this should be acted on: said before everything else."""
    remarks: tuple[str, ...] = ()
    """What this setting's own inputs leave open: a calibration on other ranks, an option that overrides a measurement."""
    comparison: Comparison | None = None
    """Of a recorded run."""


@dataclass(frozen=True, kw_only=True)
class Unmodelled:
    """What is known of a recorded run without a link to budget with: the same schema, less all that is the model's."""

    schema: str = SCHEMA
    stepscope: str
    ranks: int
    message: Size
    inputs: tuple[Input, ...]
    limits: tuple[str, ...]
    remarks: tuple[str, ...]
    comparison: Comparison
    warning: str | None = None
