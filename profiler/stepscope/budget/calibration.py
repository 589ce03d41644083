"""From measured times of collectives to alpha and B: a robust fit with intervals, and where it does not hold.

The model is the ring's, for each collective with its own factors, and a floor that no short operation goes below:
`t = max(floor, hops alpha + volume S/B)`. On a plain network the floor adds nothing. Where latency and transfer overlap, or a
library sends short messages another way, one alpha can't serve both ends: then alpha and B are those of the large sizes, which
gradients have, and the floor is measured on the small ones. No operation is shorter than one hop, so alpha is at most what
the smallest sizes took.

Errors are relative, so that no size outvotes the others, and sizes that do not fit lose their weight: iteratively reweighted
least squares with Huber's weights, then Tukey's biweight (Huber and Ronchetti, "Robust Statistics", 2nd edition 2009, ch. 7).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, TypedDict

import numpy as np
from numpy.typing import NDArray

from stepscope.budget.measured import Collective, Fit, Point, why_unusable
from stepscope.errors import InputError

Array = NDArray[np.float64]

TOLERANCE = 0.10
"""The fit holds at a size if it is off by no more."""

CLOSE, MOST = 0.05, 0.8
"""The line is fitted to all sizes from some size on: the most for which so large a share of them is so close to it."""

DOMINATED = 0.8
"""The smallest sizes say what the floor is, for as long as the line explains less than this share of their time."""

LEAST_SIZES = 3
RESAMPLES = 400
SEED = 20_26
CONFIDENCE = 0.95

_HUBER, _BIWEIGHT = 1.345, 4.685
"""In units of the scale: 95 % efficient for normal errors."""
_LEAST_SCALE = 0.02
"""Relative errors below this are noise of any network: a perfect half of the sizes must not outvote the other."""
_ROUNDS = 30


class Sample(NamedTuple):
    """One size of one collective as it was measured: seconds for one operation, each repetition."""

    collective: str
    bytes: int
    operations: int
    seconds: Sequence[float]


class Line(NamedTuple):
    """alpha in seconds, and the inverse of B in seconds a byte."""

    alpha: float
    per_byte: float


def factors(collective: str, ranks: int) -> tuple[int, float]:
    """Hops and volume of a ring: what multiplies alpha, and S/B.

    The volumes are those of nccl-tests' bus bandwidth (doc/PERFORMANCE.md of NVIDIA/nccl-tests).
    """
    passes = 2 if collective == "all_reduce" else 1
    volume = 1.0 if collective == "broadcast" else passes * (ranks - 1) / ranks
    return passes * (ranks - 1), volume


def calibrate(collective: str, ranks: int, samples: Sequence[Sample], left_out: int | None) -> Collective:
    """Fit one collective's samples, in order of size.

    left_out: the first size that was not measured since it would have taken too long. Fewer than three sizes have no fit, and a
    remark. Raises InputError for one rank, which sends nothing.
    """
    if ranks < 2:
        raise InputError("one rank sends nothing, so there is nothing to measure; start at least two")
    hops, volume = factors(collective, ranks)
    times = [np.asarray(sample.seconds, dtype=np.float64) for sample in samples]
    sizes = np.array([sample.bytes for sample in samples], dtype=np.float64)
    medians = np.array([np.median(time) for time in times])
    model, remarks = None, []
    start, line = regime(hops, volume * sizes, medians)
    if line is None:
        remarks.append(
            f"no fit: it needs {LEAST_SIZES} sizes or more, on which time grows; measure larger ones"
        )
    else:
        floor = floor_of(hops, volume * sizes, medians, line)
        model = np.maximum(floor or 0, hops * line.alpha + volume * sizes * line.per_byte)
    fit = None
    if line is not None and model is not None:
        low, high = intervals(hops, volume * sizes[start:], times[start:], most_alpha(medians))
        valid = valid_range(model / medians - 1)
        fit = Fit(
            alpha_us=line.alpha * 1e6,
            alpha_us_interval=(low.alpha * 1e6, high.alpha * 1e6),
            bandwidth_gb_per_s=1e-9 / line.per_byte,
            bandwidth_gb_per_s_interval=(1e-9 / high.per_byte, 1e-9 / low.per_byte if low.per_byte else None),
            floor_us=None if floor is None else floor * 1e6,
            fitted_from_bytes=samples[start].bytes,
            valid_bytes=None if valid is None else (samples[valid[0]].bytes, samples[valid[1]].bytes),
            tolerance=TOLERANCE,
        )
        remarks.extend(where_it_fails([sample.bytes for sample in samples], model / medians - 1, valid))
    if left_out is not None:
        remarks.append(f"{binary(left_out)} and more were left out: they would have taken too long here")
    points = [
        _point(sample, volume, None if model is None else float(model[index]))
        for index, sample in enumerate(samples)
    ]
    return Collective(name=collective, hops=hops, volume=volume, points=points, fit=fit, remarks=remarks)


def _point(sample: Sample, volume: float, model: float | None) -> Point:
    first, median, third = (float(value) for value in np.quantile(sample.seconds, (0.25, 0.5, 0.75)))
    algbw = sample.bytes / median / 1e9
    return Point(
        bytes=sample.bytes,
        repetitions=len(sample.seconds),
        operations=sample.operations,
        time_us=median * 1e6,
        time_us_quartiles=(first * 1e6, third * 1e6),
        algbw_gb_per_s=algbw,
        busbw_gb_per_s=algbw * volume,
        model_us=None if model is None else model * 1e6,
        residual=None if model is None else model / median - 1,
    )


def fit_line(hops: int, carried: Array, seconds: Array, most: float = np.inf) -> Line | None:
    """alpha and 1/B of `seconds = hops alpha + carried / B`; None where time does not grow with size.

    carried: bytes that pass a rank's link, (sizes,). seconds: (sizes,), above 0. most: what alpha can be at most.
    """
    alpha, per_byte = _fit(hops, carried, seconds[None, :], np.ones((1, len(seconds))), most)
    return Line(float(alpha[0]), float(per_byte[0])) if per_byte[0] > 0 else None


def regime(hops: int, carried: Array, seconds: Array) -> tuple[int, Line | None]:
    """The first size of those that one line serves up to the largest, and that line; see CLOSE. None where there is no line.

    Where noise leaves no such sizes, the line and its floor that are off by the least over all sizes: a few large ones that
    happen to lie on a line must not speak for the others.
    """
    best: tuple[float, int, Line | None] = (np.inf, 0, None)
    for start in range(len(seconds) - LEAST_SIZES + 1):
        line = fit_line(hops, carried[start:], seconds[start:], most_alpha(seconds))
        if line is None:
            continue
        said = hops * line.alpha + carried * line.per_byte
        errors = said[start:] / seconds[start:] - 1
        close = np.abs(errors) <= CLOSE
        # noise makes an operation slower; one that is faster than the line is no noise
        if close.mean() >= MOST and close[-1] and errors.max() <= TOLERANCE:
            return start, line
        with_floor = np.maximum(said, floor_of(hops, carried, seconds, line) or 0)
        off = float(np.abs(np.log(with_floor / seconds)).mean())
        best = min(best, (off, start, line), key=lambda one: one[0])
    return best[1], best[2]


def most_alpha(seconds: Array) -> float:
    """What a hop can take at most: the median of the smallest sizes' times, since one of them alone may be off."""
    return float(np.median(seconds[:LEAST_SIZES]))


def floor_of(hops: int, carried: Array, seconds: Array, line: Line) -> float | None:
    """The median time of the sizes, from the smallest on, that the line falls well short of; None where there are none."""
    explained = (hops * line.alpha + carried * line.per_byte) / seconds
    short = int(np.argmax([*(explained >= DOMINATED), True]))
    return float(np.median(seconds[:short])) if short else None


def intervals(hops: int, carried: Array, times: Sequence[Array], most: float) -> tuple[Line, Line]:
    """Ends of the bootstrap intervals of alpha and 1/B: the sizes are drawn anew, and each one's repetitions. Seeded.

    most: as `fit_line` takes it.
    """
    random = np.random.default_rng(SEED)
    drawn = np.stack(
        [np.median(random.choice(time, size=(RESAMPLES, len(time))), axis=1) for time in times], axis=1
    )
    shares = np.full(len(times), 1 / len(times))
    counts = random.multinomial(len(times), shares, size=RESAMPLES).astype(np.float64)
    enough = np.count_nonzero(counts, axis=1) > 1  # a line through one size is none
    alpha, per_byte = _fit(hops, carried, drawn[enough], counts[enough], most)
    ends = ((1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2)
    alphas = np.quantile(alpha, ends)
    inverses = np.quantile(per_byte, ends)
    return Line(float(alphas[0]), float(inverses[0])), Line(float(alphas[1]), float(inverses[1]))


def _fit(hops: int, carried: Array, seconds: Array, counts: Array, most: float) -> tuple[Array, Array]:
    """The robust fit of many draws at once: seconds (draws, sizes) to alpha and 1/B (draws,), neither below 0.

    counts: how often each draw has each size. most: what alpha can be at most.
    """
    latency, transfer = hops / seconds, carried / seconds
    alpha, per_byte = _weighted(latency, transfer, counts, most)
    for step in range(_ROUNDS):
        errors = np.abs(alpha[:, None] * latency + per_byte[:, None] * transfer - 1)
        scale = np.maximum(1.4826 * np.median(errors, axis=1, keepdims=True), _LEAST_SCALE)
        relative = errors / scale
        if step < _ROUNDS // 2:
            weights = np.minimum(1, _HUBER / np.maximum(relative, 1e-12))
        else:
            weights = np.square(np.maximum(1 - np.square(relative / _BIWEIGHT), 0))
        alpha, per_byte = _weighted(latency, transfer, counts * weights, most)
    return alpha, per_byte


def _weighted(latency: Array, transfer: Array, weights: Array, most: float) -> tuple[Array, Array]:
    """Least squares of `alpha latency + transfer / B = 1`, row by row, with neither term below 0 and alpha up to `most`."""
    aa = np.sum(weights * latency * latency, axis=1)
    ab = np.sum(weights * latency * transfer, axis=1)
    bb = np.sum(weights * transfer * transfer, axis=1)
    a, b = np.sum(weights * latency, axis=1), np.sum(weights * transfer, axis=1)
    determinant = np.maximum(aa * bb - ab * ab, 1e-300)
    alpha, per_byte = (a * bb - b * ab) / determinant, (b * aa - a * ab) / determinant
    no_latency, no_transfer = alpha < 0, per_byte < 0
    alpha = np.where(no_latency, 0, np.where(no_transfer, a / np.maximum(aa, 1e-300), alpha))
    bounded = np.minimum(alpha, most)
    held = no_latency | (bounded < alpha)
    per_byte = np.where(held, np.maximum(b - ab * bounded, 0) / np.maximum(bb, 1e-300), per_byte)
    return bounded, np.where(no_transfer & ~held, 0, per_byte)


def valid_range(residuals: Array) -> tuple[int, int] | None:
    """First and last of the longest run of sizes, two at least, that are within the tolerance; of equal runs the larger sizes."""
    best: tuple[int, int] | None = None
    start = None
    for index, good in enumerate([*(np.abs(residuals) <= TOLERANCE), False]):
        if good and start is None:
            start = index
        elif not good and start is not None:
            if index - start >= 2 and (best is None or index - 1 - start >= best[1] - best[0]):
                best = start, index - 1
            start = None
    return best


def where_it_fails(sizes: Sequence[int], residuals: Array, valid: tuple[int, int] | None) -> list[str]:
    """The regimes outside of the valid range, in words."""
    if valid is None:
        return [
            f"the fit holds nowhere within {100 * TOLERANCE:.0f} %; measure again on a quiet machine, or more often"
        ]
    first, last = valid
    parts = (
        (0, first, f"below {binary(sizes[first])}"),
        (last + 1, len(sizes), f"above {binary(sizes[last])}"),
    )
    return [
        f"{where} the fit does not hold: {_extent(residuals[start:end])}"
        for start, end, where in parts
        if end > start
    ]


def _extent(residuals: Array) -> str:
    low, high = float(residuals.min()), float(residuals.max())
    longer, shorter = f"up to {100 * high:.0f} % longer", f"up to {-100 * low:.0f} % shorter"
    told = [text for text, there in ((longer, high > TOLERANCE), (shorter, low < -TOLERANCE)) if there]
    return f"it says {' and '.join(told)} than measured"


def binary(size: int) -> str:
    """A size as nccl-tests' options write them: `64K` is 65536 bytes; here with its unit, `64 KiB`."""
    for shift, unit in ((30, "GiB"), (20, "MiB"), (10, "KiB")):
        if size >= 1 << shift:
            return f"{size / (1 << shift):.4g} {unit}"
    return f"{size} B"


class Summary(TypedDict):
    """The fields of a Calibration that say what a cost model should take."""

    alpha_us: float | None
    alpha_us_interval: tuple[float, float] | None
    bandwidth_gb_per_s: float | None
    bandwidth_gb_per_s_interval: tuple[float, float | None] | None
    valid_bytes: tuple[int, int] | None
    source: str | None
    unusable: str | None


def summary(collectives: Sequence[Collective]) -> Summary:
    """alpha and B of the all-reduce, which gradients go by; without one, of the first collective that has a fit."""
    fitted = sorted((one for one in collectives if one.fit), key=lambda one: one.name != "all_reduce")
    if not fitted or fitted[0].fit is None:
        return Summary(
            alpha_us=None,
            alpha_us_interval=None,
            bandwidth_gb_per_s=None,
            bandwidth_gb_per_s_interval=None,
            valid_bytes=None,
            source=None,
            unusable=None,
        )
    fit = fitted[0].fit
    return Summary(
        alpha_us=fit.alpha_us,
        alpha_us_interval=fit.alpha_us_interval,
        bandwidth_gb_per_s=fit.bandwidth_gb_per_s,
        bandwidth_gb_per_s_interval=fit.bandwidth_gb_per_s_interval,
        valid_bytes=fit.valid_bytes,
        source=fitted[0].name,
        unusable=why_unusable(fitted[0]),
    )
