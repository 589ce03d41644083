"""The same job on more ranks: what grows, and the batch size that ends it.

The ring's bandwidth term hardly moves, (P-1)/P tends to 1; its latency term and S* grow with P, and so does the global batch.
The worked example that this model follows prints 207.0 ms and +2.7 % for the bandwidth term at P = 256. That is an error:
2 x 255/256 x 2.6e9/25e9 s = 207.2 ms, +2.8 %, and its own total of 217.4 ms agrees with that.

Critical batch: McCandlish, Kaplan, Amodei and the OpenAI Dota team, "An empirical model of large-batch training" (2018,
arXiv 1812.06162). Steps to a given loss go as 1 + critical/batch: below the critical batch twice the batch nearly halves them,
above it more ranks buy ever fewer.
"""

from __future__ import annotations

import math

from stepscope.budget.buckets import recommend
from stepscope.budget.quantities import Time
from stepscope.budget.result import ScalePoint
from stepscope.budget.ring import crossover
from stepscope.budget.setting import DDP_BUCKET, Setting
from stepscope.budget.traffic import backward_cost, traffic


def global_batch(setting: Setting, ranks: int) -> float | None:
    """Samples an optimizer step, where the batch of a rank is known."""
    return None if setting.batch is None else setting.batch * setting.accumulate * ranks


def scale_points(setting: Setting) -> tuple[ScalePoint, ...]:
    """The setting itself, to compare with, and a point for each of its `scale_to`, in order; none without those.

    One rank is no point: it communicates nothing.
    """
    own = (setting.ranks,) if setting.scale_to and setting.ranks > 1 else ()
    return tuple(_point(setting, ranks) for ranks in (*own, *setting.scale_to))


def _point(setting: Setting, ranks: int) -> ScalePoint:
    cost = traffic(setting, ranks, setting.accumulate).total
    base = traffic(setting, setting.ranks, setting.accumulate).total
    alone = setting.ranks == 1
    batch, critical = global_batch(setting, ranks), setting.critical_batch
    return ScalePoint(
        ranks=ranks,
        cost=cost,
        total=cost.total,
        share=cost.total / setting.step,
        crossover=crossover(ranks, setting.link),
        default_bucket=_in_default_buckets(setting, ranks),
        recommended=recommend(setting, ranks),
        batch_growth=ranks / setting.ranks,
        bandwidth_growth=None if alone else cost.bandwidth / base.bandwidth,
        latency_growth=None if alone else cost.latency / base.latency,
        global_batch=batch,
        over_critical=None if batch is None or critical is None else batch / critical,
        steps_ratio=_steps_ratio(global_batch(setting, setting.ranks), batch, critical),
    )


def _in_default_buckets(setting: Setting, ranks: int) -> Time:
    count = math.ceil(setting.message / DDP_BUCKET)
    return backward_cost(setting.zero, ranks, setting.message, setting.link, count).total


def _steps_ratio(before: float | None, after: float | None, critical: float | None) -> float | None:
    if before is None or after is None or critical is None:
        return None
    return (1 + critical / after) / (1 + critical / before)
