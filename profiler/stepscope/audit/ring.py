"""What a ring would take for each size, fitted to the recording's own transfers: the line that bandwidth is held against.

A ring of n ranks takes hops x alpha + volume x bytes / B: 2(n-1) hops for an all-reduce and n-1 for a reduce-scatter or an
all-gather, with volume the bus factor of METRICS section 3. Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms for
clusters of workstations", 2009.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import combinations

import numpy as np

from stepscope.audit.buckets import bus_factor
from stepscope.audit.result import Collective, RingModel
from stepscope.stats import median

_PASSES = {"all_reduce": 2, "reduce_scatter": 1, "all_gather": 1}
_QUICK = 0.25
_TELLING_SPREAD = 3
"""Latency and rate can be told apart where the largest message is so many times the smallest."""
_APART = 2
"""Of two messages whose sizes differ less, noise makes the slope: buckets of one cap are all of nearly one size."""
_BYTES_PER_MS = 1e-6
"""In GB/s: 1e9 bytes a second."""


def ring_models(collectives: Iterable[Collective], world_size: int | None) -> list[RingModel]:
    """A model for each kind and number of ranks whose transfers are known; the largest traffic first.

    world_size: of collectives that name no group. Of each size the quickest quarter counts: whatever else ran on the
    machine only ever adds to a transfer.
    """
    transfers: dict[tuple[str, int], dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
    for one in collectives:
        ranks = one.group_size or world_size
        if one.kind in _PASSES and ranks and ranks > 1 and one.bytes and one.wire_ms:
            transfers[one.kind, ranks][one.bytes].append(one.wire_ms)
    by_traffic = sorted(
        transfers.items(), key=lambda item: -sum(size * len(times) for size, times in item[1].items())
    )
    return [model for key, sizes in by_traffic if (model := _fit(*key, sizes)) is not None]


def _fit(kind: str, ranks: int, sizes: dict[int, list[float]]) -> RingModel | None:
    points = [(size, float(np.quantile(times, _QUICK))) for size, times in sorted(sizes.items())]
    start_up, per_byte = line_through(points)
    if per_byte <= 0:
        return None
    told_apart = points[-1][0] >= _TELLING_SPREAD * points[0][0]
    return RingModel(
        kind=kind,
        group_size=ranks,
        transfers=sum(map(len, sizes.values())),
        smallest_bytes=points[0][0],
        largest_bytes=points[-1][0],
        alpha_ms=start_up / (_PASSES[kind] * (ranks - 1)) if told_apart else None,
        gb_per_s=bus_factor(kind, ranks) / per_byte * _BYTES_PER_MS,
    )


def line_through(points: Sequence[tuple[int, float]]) -> tuple[float, float]:
    """What every transfer takes, and a byte: the median of the slopes (Theil-Sen) of (bytes, time), neither below 0.

    points: by size. All of it is the bytes' where the sizes are too much alike to tell the two apart.
    """
    if points[-1][0] < _TELLING_SPREAD * points[0][0]:
        return 0.0, median([time / size for size, time in points])
    apart = [(a, b) for a, b in combinations(points, 2) if b[0] >= _APART * a[0]]
    slopes = [(b[1] - a[1]) / (b[0] - a[0]) for a, b in apart]
    per_byte = max(0.0, median(slopes))
    return max(0.0, median([time - per_byte * size for size, time in points])), per_byte
