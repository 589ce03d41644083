"""The result of a sweep as plain data: what sweep.json holds, and all that its report sees.

Schema `stepscope.sweep/1`. Times in ms (`_ms`), sizes in bytes (`_bytes`), shares from 0 to 1; MiB is 2**20 bytes, as DDP's
bucket_cap_mb counts. A field that does not apply is absent. The schema only ever grows.
"""

from __future__ import annotations

import msgspec

SCHEMA = "stepscope.sweep/1"

Interval = tuple[float, float]
"""95 %, from and to."""


class Row(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One candidate."""

    label: str = ""
    """The knobs that differ between candidates, in words."""
    knobs: dict[str, str]
    """What was set; a bucket cap of "script" is the script's own."""
    status: str
    """measured, failed, no-ddp (measured, but the bucket cap changed nothing), or not-run (the sweep was stopped)."""
    message: str | None = None
    """Why it is not plainly measured, and what to do."""
    bucket_cap_mb: float | None = None
    """As DDP itself says it; as asked for where no DDP module said anything."""
    buckets: int | None = None
    """How many DDP made, by DDP itself."""
    runs: int = 0
    run_step_ms: list[float] = []
    """The median unrecorded step of each run, by round."""
    step_ms: float | None = None
    """Geometric mean over the runs."""
    step_ms_ci: Interval | None = None
    step_ms_ci_over: str | None = None
    """runs, or steps: with one run a candidate the interval knows of no difference between runs."""
    micro_batch_ms: float | None = None
    """step_ms by the micro-batches a step, where --accumulate is compared: what then decides."""
    recorded_step_ms: float | None = None
    """The steps that the following five are of: with the profiler's cost. Means over the runs."""
    backward_ms: float | None = None
    """Backward compute."""
    comm_ms: float | None = None
    """Gradient communication: the transfer alone where it could be told from waiting."""
    exposed_ms: float | None = None
    """Gradient communication beside no compute."""
    floor_ms: float | None = None
    """What these buckets leave exposed at best."""
    overlap_backward: float | None = None
    model_ms: float | None = None
    """Gradient communication by the ring's model."""
    latency_share: float | None = None
    """Of model_ms."""
    bandwidth_bound: bool | None = None
    """By the model: the average bucket's bytes take longer than its latency."""
    predicted_step_ms: float | None = None
    """As `stepscope predict` has it, from one run; what a bucket takes may be known from others too."""
    predicted_from: str | None = None
    """That run's folder, in the sweep's directory."""
    predicted_link: str | None = None
    """What says how long a bucket takes in that prediction."""
    over_best: float | None = None
    """Its time over the best candidate's, both measured in the same rounds; 1 is as fast."""
    over_best_ci: Interval | None = None
    """For all candidates together (Bonferroni)."""
    tied: bool = False
    """Not told apart from the best one."""
    rounds_to_tell: int | None = None
    """Complete rounds, in all, that would tell it from the best one; absent where a hundred would not do."""
    folders: list[str] = []
    """Of its recordings, in the sweep's directory."""


class Best(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The fastest candidate."""

    row: int
    """Its place in `rows`, from 0."""
    knobs: dict[str, str]
    bucket_cap_mb: float | None = None
    tied_with: list[int] = []
    """Rows that can't be told from it."""
    certain: bool
    """All others are slower by more than noise."""


class Model(msgspec.Struct, frozen=True, kw_only=True):
    """What model_ms rests on."""

    source: str
    alpha_us: float
    bandwidth_gb_per_s: float


class Sweep(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """All of sweep.json."""

    schema: str
    stepscope: str
    """Version that made it."""
    command: list[str]
    script: str
    folder: str
    world_size: int | None = None
    backend: str | None = None
    knobs: dict[str, list[str]]
    fabric: str | None = None
    warmup: int
    steps: int
    repeat: int
    seed: int
    """Of the random order of the runs."""
    halving: bool = False
    runs: int
    runs_saved: int | None = None
    """By halving, of those that every candidate in every round would have taken."""
    replaced_caps_mb: list[float] = []
    """Bucket caps that the script asked for, and did not get."""
    rows: list[Row]
    best: Best | None = None
    """Absent where nothing was measured."""
    model: Model | None = None
    stopped: str | None = None
    """Why runs are missing."""
    explanation: str
    next_step: str
    """What to do now, with the command where there is one."""
