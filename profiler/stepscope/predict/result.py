"""A prediction as plain data, schema `stepscope.predict/1`. Times in ms, sizes in bytes; absent where it can't be told."""

from __future__ import annotations

import msgspec

SCHEMA = "stepscope.predict/1"

Interval = tuple[float, float]


class Prediction(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One bucket cap; times of one step, medians over the recorded steps of means over ranks."""

    bucket_cap_mb: float
    bucket_bytes: list[int]
    """Of each bucket, in launch order, by DDP's own rule."""
    step_ms: float
    """Of an unrecorded step where the run says what recording cost, else of a recorded one."""
    exposed_ms: float
    """Gradient communication that no compute hides."""
    floor_ms: float | None = None
    """Exposed time that no schedule of these buckets avoids; absent for the recorded ones."""
    gain_ms: float
    """How much shorter than in the recorded buckets under the same what-if; below 0 where it is longer."""
    gain_ms_ci: Interval | None = None
    """Bootstrap 95 % over the recorded steps; absent with one."""

    @property
    def buckets(self) -> int:
        """How many buckets."""
        return len(self.bucket_bytes)


class Recorded(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What the prediction starts from."""

    run: str
    world_size: int
    backend: str | None
    device: str
    steps: list[int]
    accumulate: int
    """Backwards an optimizer step."""
    bucket_cap_mb: float | None
    """As the run has it; absent where run.json is."""
    first_bucket_cap_mb: float | None = None
    """Of the first bucket, where it is another one: DDP's default has 1 MiB for it."""
    bucket_bytes: list[int]
    step_ms: float
    """Of an unrecorded step where the run has one, else of a recorded one."""
    recorded_step_ms: float
    exposed_ms: float
    check_ms: float | None = None
    """The recorded cap as it is predicted, less the recorded buckets' step: the prediction's own error where it is known."""
    slowdown: float | None = None
    """On a CPU: how many times as long the same operators took beside a transfer."""


class Link(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a bucket takes: `latency_us + bytes / gb_per_s`, in the world predicted for."""

    latency_us: float
    gb_per_s: float
    """Bytes of the message over its time, without the latency (the algorithm bandwidth)."""
    alpha_us: float | None = None
    """Latency of one hop of the ring: the same for any number of ranks, as is the next; absent with one rank."""
    bus_gb_per_s: float | None = None
    """B: bandwidth of a rank's link, as `--bw` takes it and `stepscope calibrate` gives it."""
    source: str
    """Where latency and bandwidth are from."""
    remarks: list[str] = []
    warning: str | None = None
    """Why nothing should be predicted with it: said before the answer."""


class WhatIf(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is otherwise than in the recorded run; absent is as it was."""

    world_size: int | None = None
    gb_per_s: float | None = None
    latency_us: float | None = None
    fabric: str | None = None
    accumulate: int | None = None
    zero: int | None = None


class NoiseScale(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What the run's gradient noise scale says of the global batch under the what-if (McCandlish et al. 2018)."""

    rank_batches: float
    """The noise scale, in batches of one rank's optimizer step as recorded."""
    rank_batches_low: float | None = None
    rank_batches_high: float | None = None
    """Absent where the run sets no upper bound."""
    samples: float | None = None
    """The same in samples, where the batch of a rank is given."""
    steps_factor: float
    """How many times the recorded job's steps reach the same loss, by 1 + noise scale / batch."""
    samples_factor: float
    """How many times its samples."""


class Predicted(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """All that `stepscope predict` says."""

    schema: str
    stepscope: str
    recorded: Recorded
    what_if: WhatIf
    link: Link
    present: Prediction
    """The recorded buckets under the what-if."""
    caps: list[Prediction]
    best_schedule: Prediction
    """Every gradient sent the moment it is there, without latency: no cap can beat it."""
    recommended_mb: float | None = None
    """The middle one of the caps that can't be told from the best, where it gains more than the noise; else absent."""
    alike_mb: list[float] = []
    """The caps that it was chosen among, one of each that give the same buckets."""
    why: str
    """What the recommendation, or its absence, rests on."""
    global_batch: float | None = None
    """Samples an optimizer step under the what-if, where the batch of a rank is given."""
    global_batch_growth: float
    """Against the recorded run."""
    noise_scale: NoiseScale | None = None
    """Where the run measured it (`stepscope run --noise-scale`)."""
    assumptions: list[str]
