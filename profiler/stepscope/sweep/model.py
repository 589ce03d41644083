"""The ring's model beside the candidates: alpha and B by a calibration, or fitted to the sweep's own communication."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from stepscope.budget.calibrated import PASSES, Model, Terms, measured_model
from stepscope.budget.calibration import Sample, calibrate
from stepscope.budget.measured import Calibration
from stepscope.budget.quantities import ZERO_TIME, Rate, Size, Time
from stepscope.sweep.results import Figures

KIND = "all_reduce"


class Modelled(NamedTuple):
    """A candidate's gradient communication by the model; the analytic table's columns."""

    time: Time
    latency_share: float
    bandwidth_bound: bool
    """Its buckets are, on the average, of at least the size at which latency and bandwidth cost the same."""


def model_of(calibration: Calibration | None, figures: Sequence[Figures]) -> Model | None:
    """The calibration's model; without one a fit of the runs' own communication, None where they do not give one.

    A run of n buckets and S bytes says what one bucket of S/n takes on the average, back to back on the link: two lanes that
    share it are no matter. Raises InputError where the calibration has no fit.
    """
    worlds = {one.world_size for one in figures if usable(one)}
    if len(worlds) != 1:
        return None
    (ranks,) = worlds
    if calibration is not None:
        return measured_model(calibration, ranks)
    fit = calibrate(KIND, ranks, [*_samples(figures)], None).fit
    if fit is None:
        return None
    base = Terms(
        alpha=Time.from_us(fit.alpha_us),
        rate=Rate.from_gb_per_s(fit.bandwidth_gb_per_s),
        floor=Time.from_us(fit.floor_us or 0.0),
    )
    return Model(name="a fit of this sweep's own communication", base=base, own={})


def _samples(figures: Iterable[Figures]) -> Iterable[Sample]:
    seconds: defaultdict[int, list[float]] = defaultdict(list)
    for one in figures:
        if usable(one) and one.comm_ms:
            count = len(one.bucket_bytes)
            seconds[sum(one.bucket_bytes) // count].append(one.comm_ms / 1e3 / count)
    return (Sample(KIND, size, 1, times) for size, times in sorted(seconds.items()))


def usable(figures: Figures) -> bool:
    """Whether the model has a time for such traffic: DDP's all-reduces between two ranks or more."""
    return figures.all_reduced and bool(figures.bucket_bytes) and figures.world_size > 1


def modelled(model: Model, figures: Figures) -> Modelled:
    """The model's side of a candidate that is `usable`."""
    terms, ranks = model.terms(KIND), figures.world_size
    total = sum((terms.time(KIND, ranks, Size.from_bytes(size)) for size in figures.bucket_bytes), ZERO_TIME)
    message = Size.from_bytes(sum(figures.bucket_bytes))
    bandwidth = PASSES[KIND] * (ranks - 1) / ranks * (message / terms.rate)
    star = terms.rate.during(terms.alpha) * ranks  # as ring.crossover, which has no link without latency
    return Modelled(
        time=total,
        latency_share=max(1 - bandwidth / total, 0.0),
        bandwidth_bound=message * (1 / len(figures.bucket_bytes)) >= star,
    )
