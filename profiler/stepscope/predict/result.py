"""A prediction as plain data, schema `stepscope.predict/1`. Times in ms, sizes in bytes; absent where it can't be told."""

from __future__ import annotations

import msgspec

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
    floor_ms: float
    """Exposed time that no schedule of these buckets avoids."""
    gain_ms: float
    """How much shorter than in the recorded buckets; below 0 where it is longer."""
    gain_ms_ci: Interval | None = None
    """Bootstrap 95 % over the recorded steps; absent with one."""

    @property
    def buckets(self) -> int:
        """How many buckets."""
        return len(self.bucket_bytes)
