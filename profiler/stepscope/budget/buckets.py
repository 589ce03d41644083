"""How the bucket size changes the cost, and which sizes to take.

A bucket pays the ring's whole latency term, so `count` buckets cost `count * L + V`, with L the latency and V the bandwidth
term of the whole message. Small buckets multiply L; a bucket can't start before it is full, so large ones leave little to
overlap, and the last one always sticks out.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from stepscope.budget.quantities import Size, Time
from stepscope.budget.result import BucketRow, Recommendation
from stepscope.budget.ring import crossover
from stepscope.budget.setting import DDP_BUCKET, Setting
from stepscope.budget.traffic import backward_cost
from stepscope.units import plural

COMFORT = 4
"""Multiples of S* from which a bucket is comfortably bandwidth-bound: it takes 1/4 over its ideal time. At S* itself, twice."""

ENOUGH = 24
"""Buckets that leave enough to overlap: the last one, never hidden, is then about 4 % of the traffic."""

NEARLY = 1.1
"""Sizes that expose at most this many times the least are as good."""

MOST_BUCKETS = 1 << 30

ROUNDING = 1e-9
"""Relative: what a product of floats may be off."""


def bucket_row(setting: Setting, bucket: Size) -> BucketRow:
    """The table's row for one bucket size."""
    count = math.ceil(setting.message / bucket)
    cost = backward_cost(setting.zero, setting.ranks, setting.message, setting.link, count)
    return BucketRow(
        bucket=bucket,
        count=count,
        total=cost.total,
        latency_share=cost.latency_share,
        over_ideal=cost.latency / cost.bandwidth,
        overlaps=count > 1,
        bandwidth_bound=min(bucket, setting.message) / crossover(setting.ranks, setting.link) >= 1 - ROUNDING,
        exposed=exposed(setting, setting.ranks, count),
        covers_model=bucket >= setting.message,
    )


def exposed(setting: Setting, ranks: int, count: int) -> Time:
    """What of one backward's communication sticks out of it, at best, in `count` equal buckets one after another.

    Gradients become ready at an even pace over the window W, so bucket i of n is full at iW/n. The end of the last one is the
    latest of "bucket i starts when it is full and all after it follow without a gap"; that is linear in i, so one of two
    holds: the last bucket alone sticks out, or the link is busy from the first one on. exposed = max(t, W/n + n t - W), t the
    time of a bucket.
    """
    total = backward_cost(setting.zero, ranks, setting.message, setting.link, count).total
    busy_throughout = setting.window / count + total - setting.window
    return max(total / count, busy_throughout)


def recommend(setting: Setting, ranks: int) -> Recommendation:
    """The range of bucket sizes to take at that number of ranks.

    From `COMFORT` times S* up to what still leaves `ENOUGH` buckets. Where S* is so large that no size does both, latency and
    overlap have to be traded: the sizes that expose least, within 10 %.
    """
    star = crossover(ranks, setting.link)
    low, high = star * COMFORT, setting.message / ENOUGH
    if low <= high:
        low, high = _rounded(low, high)
        return _range(setting, ranks, low, high, _comfortable_reason(low, star))
    best = _least_exposed_count(setting, ranks)
    limit = exposed(setting, ranks, best) * NEARLY
    most = _last(lambda count: exposed(setting, ranks, count) <= limit, best, MOST_BUCKETS)
    fewest = -_last(lambda count: exposed(setting, ranks, -count) <= limit, -best, -1)
    low, high = setting.message / most, setting.message / fewest
    return _range(setting, ranks, low, high, _compromise_reason(setting, star), comfortable=False)


def _range(
    setting: Setting, ranks: int, low: Size, high: Size, reason: str, *, comfortable: bool = True
) -> Recommendation:
    in_default = math.ceil(setting.message / DDP_BUCKET)
    default = backward_cost(setting.zero, ranks, setting.message, setting.link, in_default)
    counts = [max(1, round_up(setting.message / size)) for size in (low, high)]
    return Recommendation(
        low=low,
        high=high,
        low_count=counts[0],
        high_count=counts[1],
        exposed=min(exposed(setting, ranks, count) for count in counts),
        comfortable=comfortable,
        default_over_crossover=DDP_BUCKET / crossover(ranks, setting.link),
        default_over_ideal=default.latency / default.bandwidth,
        default_exposed=exposed(setting, ranks, in_default),
        reason=reason,
    )


def round_up(count: float) -> int:
    """The next whole number, but for what rounding left over of a whole one."""
    return math.ceil(count * (1 - ROUNDING))


def _rounded(low: Size, high: Size) -> tuple[Size, Size]:
    """Up and down to multiples of a power of two MiB that is small beside them, unless that leaves nothing."""
    grid = 2.0 ** math.floor(math.log2(low.mib / 8))
    up = Size.from_mib(math.ceil(low.mib / grid) * grid)
    down = Size.from_mib(math.floor(high.mib / grid) * grid)
    return (up, down) if up <= down else (low, high)


def _comfortable_reason(low: Size, star: Size) -> str:
    return (
        f"From {low / star:.1f} times S*, where latency adds {100 * (star / low):.0f} % to the ideal (at S* it doubles it), "
        f"up to the largest that leaves {ENOUGH} buckets or more: nothing hides the last one."
    )


def _compromise_reason(setting: Setting, star: Size) -> str:
    left = math.ceil(setting.message / (star * COMFORT))
    return (
        f"No size does both: {COMFORT} times S* is {(star * COMFORT).mib:,.1f} MiB, which makes {plural(left, 'bucket')}, and "
        f"{ENOUGH} are enough to overlap well. This range exposes least in the model; what helps is a smaller latency term: "
        "a tree, a hierarchical all-reduce, fewer ranks, or fewer reductions."
    )


def _least_exposed_count(setting: Setting, ranks: int) -> int:
    """The number of buckets that exposes least. Both terms of `exposed` are convex in it, and so is their maximum."""
    low, high = 1, MOST_BUCKETS
    while low < high:
        middle = (low + high) // 2
        if exposed(setting, ranks, middle) <= exposed(setting, ranks, middle + 1):
            high = middle
        else:
            low = middle + 1
    return low


def _last(holds: Callable[[int], bool], first: int, end: int) -> int:
    """The last number from `first`, where it holds, to `end` at which it still holds; it never holds again after it failed."""
    low, high = first, end
    while low < high:
        middle = (low + high + 1) // 2
        if holds(middle):
            low = middle
        else:
            high = middle - 1
    return low
