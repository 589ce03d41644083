"""What-if from one recorded run: other bucket caps, another link, other ranks.

    bucket_caps(run: str | Path, caps_mb: Sequence[float]) -> list[Prediction]

predicts a step for each `bucket_cap_mb`; a `Prediction` (`predict.result`) has step_ms, exposed_ms, floor_ms, gain_ms with its
interval, bucket_bytes and buckets.
"""

from __future__ import annotations

from stepscope.predict.caps import bucket_caps
from stepscope.predict.result import Prediction

__all__ = ["Prediction", "bucket_caps"]
