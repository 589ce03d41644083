"""The result of a comparison as plain data: schema `stepscope.compare/1`.

A is the audit that was named first, B the second. Times in ms, sizes in bytes, shares from 0 to 1. What does not apply is
absent, never NaN. The schema only ever grows.
"""

from __future__ import annotations

import msgspec

SCHEMA = "stepscope.compare/1"

BETTER, WORSE, CHANGED, NOISE, TOO_FEW = "better", "worse", "changed", "noise", "too few steps"


class _Plain(msgspec.Struct, omit_defaults=True, frozen=True, kw_only=True):
    """Absent (None) fields are left out of the JSON."""


class Side(_Plain, frozen=True, kw_only=True):
    """One of the two audits."""

    name: str
    """The path it came from."""
    label: str
    reason: str
    steps: int
    """Steps that are compared: the counted ones, each over all ranks."""
    ranks: int
    world_size: int | None = None
    backend: str | None = None
    device: str | None = None
    device_name: str | None = None
    gradient_bytes: int | None = None
    """What a step's buckets hold together."""


class Setting(_Plain, frozen=True, kw_only=True):
    """A setting of the run that is not the same on both sides, each value as it is written for people."""

    name: str
    a: str
    b: str


class Difference(_Plain, frozen=True, kw_only=True):
    """One figure on both sides: medians over steps, each step the mean over ranks."""

    figure: str
    """Its path in a step of audit.json ("step_ms", "grad.exposed_ms", "waterfall.queue_ms"), "cost_share" or
    "overlap_backward"."""
    unit: str
    """ "ms" or "share"."""
    a: float | None = None
    b: float | None = None
    change: float | None = None
    """b - a."""
    change_ci: tuple[float, float] | None = None
    """Bootstrap 95 % interval of the change; the steps are the samples."""
    says: str
    """ "better" or "worse" where the interval leaves zero out ("changed" where neither is the better), "noise" where it
    holds zero, "too few steps" where nothing can be told."""
    steps_needed: int | None = None
    """About how many steps a side would tell a change of this size from noise."""


class BucketDifference(_Plain, frozen=True, kw_only=True):
    """One bucket, or a bucket that only one side has."""

    a: int | None = None
    """Its position in launch order on that side."""
    b: int | None = None
    bytes: int | None = None
    bytes_b: int | None = None
    """Where it differs from A's."""
    figures: list[Difference] = []
    """ "duration_ms", "exposed_ms" and "hidden_share"; without one of the sides, empty."""


class FindingChange(_Plain, frozen=True, kw_only=True):
    """A cause that one side has or both have. change: "new", "gone" or "stays"."""

    cause: str
    change: str
    a_cost_ms: float | None = None
    b_cost_ms: float | None = None


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """All that a report of a comparison sees."""

    schema: str = SCHEMA
    stepscope: str
    """Version that made it."""
    a: Side
    b: Side
    summary: list[str]
    """What changed, in sentences: verdict, step time, cost of communication."""
    changed: list[Setting] | None = None
    """Settings that the two run.json, or the audits, have otherwise; null where a side has no run.json."""
    warnings: list[str]
    """In what the two are not alike, so that a difference may be none of the job's."""
    figures: list[Difference]
    waterfall: list[Difference]
    """The parts of the exposed time that either side has."""
    buckets: list[BucketDifference]
    findings: list[FindingChange]
