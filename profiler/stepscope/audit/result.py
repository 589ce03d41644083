"""The result of an audit as plain data: what audit.json holds, and all that a report ever sees.

Schema `stepscope.audit/1`. Times in ms (`_ms`), sizes in bytes (`_bytes`), shares from 0 to 1, but for `comm_share`, which
passes 1 where communication takes longer than the rest of the step; GB is 1e9 bytes. A field that does not apply is absent,
never NaN and never a made-up zero. `start_ms`, `launch_ms` and `ready_ms` count from the first recorded event of their own
rank. The schema only ever grows.
"""

from __future__ import annotations

from typing import Any

import msgspec

SCHEMA = "stepscope.audit/1"

Span = tuple[float, float]
"""Start and end in ms."""


class _Plain(msgspec.Struct, omit_defaults=True, frozen=True, kw_only=True):
    """Absent (None) fields are left out of the JSON."""


class Thresholds(msgspec.Struct, frozen=True, kw_only=True):
    """Where the labels change; options with these defaults."""

    cost_share: float = 0.10
    comm_share: float = 0.10
    host_starved_share: float = 0.50


class Verdict(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The answer. label: comm-bound, comm-sensitive, compute-bound, inconclusive or "no communication"."""

    label: str
    reason: str
    host_bound: bool
    """The device waits for launches most of the time."""
    step_ms: float | None = None
    """How long a step took: median over valid steps of the mean over ranks."""
    cost_share: float | None = None
    """Cost of communication over the step: median over valid steps of the mean over ranks."""
    cost_share_ci: Span | None = None
    """Bootstrap 95 % interval over the steps; absent with fewer than two valid steps."""
    cost_replayed: bool | None = None
    """Whether the cost comes from replaying every step; if not, it is an upper bound."""
    comm_share: float | None = None
    comm_share_ci: Span | None = None
    rank_spread: Span | None = None
    """Lowest and highest rank's median cost share."""
    overlap_backward: float | None = None
    """Gradient communication hidden by backward compute over all gradient communication, valid steps of all ranks."""
    overlap_backward_wire: float | None = None
    """The same for transfer alone: a straggler, for whom the others wait, neither raises nor lowers it."""
    headroom: float | None = None
    """comm-sensitive: how many times slower the wire may get before the cost share passes its threshold."""
    contention_ms: float | None = None
    """How much longer a step's compute ran because collectives ran beside it; no part of the cost. Median over valid steps
    of the mean over ranks, absent where too little of the same compute ran alone."""
    contention_ms_ci: Span | None = None
    contention_compared: float | None = None
    """The share of the compute beside collectives of which it is known what the same takes alone."""
    waits: str | None = None
    """On a GPU, how it is known which stream or host thread waits for which: recorded, inferred, or partly recorded."""
    confidence: str | None = None
    """high, medium or low, and after a colon why not high."""
    thresholds: Thresholds = Thresholds()
    explanation: str
    next_step: str | None = None
    """What to do now, with the command where there is one."""


class Totals(_Plain, frozen=True, kw_only=True):
    """Sums over a file or a step. hidden_backward + hidden_other + exposed = comm."""

    comm_ms: float
    compute_ms: float
    backward_compute_ms: float | None = None
    hidden_backward_ms: float | None = None
    hidden_other_ms: float | None = None
    hidden_ms: float | None = None
    """Hidden by any compute; the only overlap figure that is left when launch records, hence phases, are missing."""
    exposed_ms: float
    collectives: int
    unknown_phase: int
    """Kernels without a launch record."""


class GradientTotals(_Plain, frozen=True, kw_only=True):
    """The same for gradient collectives alone, with the floor that no schedule of these buckets beats."""

    comm_ms: float
    hidden_backward_ms: float
    hidden_other_ms: float
    exposed_ms: float
    floor_ms: float | None = None
    excess_ms: float | None = None
    """exposed - floor: what a better schedule could win back."""
    wire_ms: float | None = None
    """From here on: transfer alone, waiting for other ranks left out; absent where that can't be told."""
    wire_hidden_backward_ms: float | None = None
    wire_hidden_other_ms: float | None = None
    wire_exposed_ms: float | None = None


class Waterfall(_Plain, frozen=True, kw_only=True):
    """Where the exposed time of a step went; only the parts that were measured are present."""

    peer_wait_ms: float | None = None
    outside_backward_ms: float | None = None
    host_starved_ms: float | None = None
    device_blocked_ms: float | None = None
    late_launch_ms: float | None = None
    queue_ms: float | None = None
    tail_ms: float | None = None
    unattributed_ms: float | None = None


class Timeline(_Plain, frozen=True, kw_only=True):
    """A step as lanes to draw: coarse spans (neighbours closer than a thousandth of the step are merged)."""

    forward: list[Span]
    backward: list[Span]
    optimizer: list[Span]
    exposed: list[Span]


class Step(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One training step of one rank: what it launched, wherever on the device's clock it ran."""

    step: int
    valid: bool
    why_invalid: str | None = None
    start_ms: float
    wall_ms: float
    """Its window on the host."""
    step_ms: float | None = None
    """How long it took: on the device, from one step's end to the next's, where the host runs ahead, else its window."""
    comm_ms: float
    compute_ms: float
    backward_compute_ms: float | None = None
    hidden_backward_ms: float | None = None
    hidden_other_ms: float | None = None
    hidden_ms: float | None = None
    exposed_ms: float
    collectives: int
    unknown_phase: int
    device_busy_share: float | None = None
    """Share of the step in which any device activity ran."""
    host_starved_share: float | None = None
    """Share of the step in which the device was idle because its next kernel had not been launched."""
    grad: GradientTotals | None = None
    waterfall: Waterfall | None = None
    cost_ms: float | None = None
    timeline: Timeline | None = None


class Rank(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One file: one rank and one recording window."""

    rank: int | None = None
    world_size: int | None = None
    backend: str | None = None
    device: str | None = None
    """ "cuda", "rocm" or "cpu", from what was recorded; device_name says which chip."""
    device_name: str | None = None
    host: str | None = None
    source: str
    start_ns: int | None = None
    """The rank's first recorded event, ns since the epoch, on its host's clock."""
    totals: Totals
    steps: list[Step]


class Collective(_Plain, frozen=True, kw_only=True):
    """One collective operation on one rank."""

    rank: int | None = None
    source: str
    step: int | None = None
    kind: str
    """all_reduce, reduce_scatter, all_gather, broadcast, reduce, all_to_all, send_recv, barrier, gather, scatter, unknown."""
    phase: str
    """forward, backward, optimizer or unknown."""
    gradient: bool
    role: str
    """What it carried: gradient, parameter, buffer, bucket-rebuild, unused-parameter-map, metric, activation, barrier, other."""
    bytes: int | None = None
    dtype: str | None = None
    group: str | None = None
    group_size: int | None = None
    seq: int | None = None
    stream: int | None = None
    name: str
    ready_ms: float | None = None
    launch_ms: float | None = None
    start_ms: float
    duration_ms: float
    wait_ms: float | None = None
    wire_ms: float | None = None
    hidden_backward_ms: float | None = None
    exposed_ms: float
    bus_gb_per_s: float | None = None


class Bucket(_Plain, frozen=True, kw_only=True):
    """One DDP bucket (or FSDP unit) over the valid steps: each the mean over ranks and passes; of the steps the median."""

    bucket: int
    """Position in launch order, from 0."""
    bytes: int | None = None
    parameters: int | None = None
    steps: int
    """In how many (rank, step) pairs it was seen."""
    passes: int = 1
    """In how many backward passes of a step it was reduced; times and shares are of one pass."""
    ready_ms: float | None = None
    """From the start of its pass's backward compute, as are launch and start."""
    launch_ms: float | None = None
    start_ms: float
    duration_ms: float
    hidden_share: float
    """Share of its duration under backward compute."""
    exposed_ms: float


class RingModel(_Plain, frozen=True, kw_only=True):
    """A ring fitted to the transfers of one kind among so many ranks: hops x alpha + volume x bytes / B.

    hops: 2(n-1) for an all-reduce, else n-1; volume: the factor of bus bandwidth.
    """

    kind: str
    group_size: int
    transfers: int
    """How many it was fitted to."""
    smallest_bytes: int
    largest_bytes: int
    alpha_ms: float | None = None
    """Latency of one hop; absent where the sizes are too much alike to tell it from the rate."""
    gb_per_s: float
    """B: what the bus bandwidth nears as messages grow."""


class Finding(_Plain, frozen=True, kw_only=True):
    """Why overlap is broken: a cause, its price, the evidence, and what to set."""

    cause: str
    severity: str
    cost_ms: float | None = None
    """What the step, replayed without it, is shorter by: median over steps of the mean over ranks."""
    cost_ms_ci: Span | None = None
    """Bootstrap 95 % interval over the steps; absent with fewer than two of them."""
    confidence: str
    steps: list[int] = []
    ranks: list[int] = []
    evidence: list[str] = []
    fix: str
    reference: str | None = None


class Recommendation(_Plain, frozen=True, kw_only=True):
    """The `bucket_cap_mb` that is predicted to make a step shorter by more than the noise."""

    bucket_cap_mb: float
    buckets: int
    alike_mb: list[float] = []
    """The caps that it was chosen among, since their steps can't be told from the shortest; one of each with the same buckets."""
    step_ms: float
    """Of an unrecorded step where the run says what recording cost, else of a recorded one; the gain too."""
    gain_ms: float
    gain_ms_ci: Span
    """Bootstrap 95 % over the recorded steps."""
    contention_ms: float | None = None
    """How much of the gain is compute that transfers slow less (below 0: more), which is no part of the cost of communication;
    absent where nothing tells."""
    late_start_ms: float | None = None
    """How much of the gain would be left if no transfer took any time: buckets that start when their last gradient is there,
    where the recorded ones started late. No part of the cost of communication either; the rest of the gain is."""


class Warning(_Plain, frozen=True, kw_only=True):
    """Something the reader of the figures must know."""

    code: str
    message: str
    source: str | None = None


class Audit(msgspec.Struct, frozen=True, kw_only=True):
    """All of audit.json."""

    schema: str = SCHEMA
    stepscope: str
    """Version that made it."""
    verdict: Verdict
    ranks: list[Rank]
    collectives: list[Collective]
    buckets: list[Bucket]
    stragglers: list[dict[str, Any]] = []
    clocks: list[dict[str, Any]] = []
    ring_models: list[RingModel] = []
    findings: list[Finding] = []
    recommendation: Recommendation | None = None
    """Absent where no bucket cap is predicted to gain anything."""
    warnings: list[Warning] = []
    run: dict[str, Any] | None = None
    """run.json of a recorded run, as it is."""
