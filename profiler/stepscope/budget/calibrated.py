"""How long a collective takes by a measured fabric, by a link that was given, or by a mixture of the two."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from stepscope.budget.links import Link
from stepscope.budget.quantities import ZERO_TIME, Rate, Size, Time
from stepscope.budget.ring import PASSES_OF_ALL_REDUCE
from stepscope.errors import InputError

if TYPE_CHECKING:
    from stepscope.budget.measured import Calibration, Fit

PASSES = {"all_reduce": PASSES_OF_ALL_REDUCE, "reduce_scatter": 1, "all_gather": 1}
"""Passes over the ring of the collectives that carry gradients and parameters."""

TOLERANCE = 0.10
"""As a calibration's: within it a prediction is called met."""


@dataclass(frozen=True, kw_only=True)
class Terms:
    """`time = max(floor, passes ((P-1) alpha + (P-1)/P S/B))` of one collective on P ranks.

    valid: the sizes in which the fit holds to `TOLERANCE`; None where nothing was measured, or nowhere. An alpha of 0 is what a
    fit may say of a link whose transfer time drowns it.
    """

    alpha: Time
    rate: Rate
    floor: Time = ZERO_TIME
    valid: tuple[Size, Size] | None = None

    def time(self, kind: str, ranks: int, size: Size) -> Time:
        """What one `kind` of `size` takes on that many ranks; `kind` is one of `PASSES`."""
        line = (ranks - 1) * self.alpha + (ranks - 1) / ranks * (size / self.rate)
        return max(PASSES[kind] * line, self.floor)

    def holds(self, size: Size) -> bool:
        """Whether the fit was found to hold there, or nothing is known of a range."""
        return self.valid is None or self.valid[0] <= size <= self.valid[1]


@dataclass(frozen=True, kw_only=True)
class Model:
    """Terms for each collective that was calibrated, and for any other. name: what they are from, for people."""

    name: str
    base: Terms
    own: dict[str, Terms]

    def terms(self, kind: str) -> Terms:
        """The collective's own terms, else those of the all-reduce."""
        return self.own.get(kind, self.base)


def given_model(link: Link) -> Model:
    """The ring over a link that the user described."""
    return Model(name="the link given", base=Terms(alpha=link.latency, rate=link.rate), own={})


def measured_model(
    made: Calibration, ranks: int, *, latency: Time | None = None, rate: Rate | None = None
) -> Model:
    """The calibration's terms for `ranks`, with what the user gave in place of what was measured.

    alpha and B are a hop's and a link's, so they serve any number of ranks; the floor is a whole operation's and serves the
    number it was measured on. A given latency takes the floor away, and either one the range in which the fit was seen to hold.
    Raises InputError where the file has no fit to take.
    """
    fits = {one.name: one.fit for one in made.collectives if one.fit is not None}
    base = fits.get(made.source or "")
    if base is None:
        raise InputError(
            "the calibration found no latency and bandwidth that fit its times; calibrate over more sizes"
        )
    same = ranks == made.world_size

    def terms(fit: Fit) -> Terms:
        return Terms(
            alpha=Time.from_us(fit.alpha_us) if latency is None else latency,
            rate=Rate.from_gb_per_s(fit.bandwidth_gb_per_s) if rate is None else rate,
            floor=Time.from_us(fit.floor_us or 0.0) if same and latency is None else ZERO_TIME,
            valid=_valid(fit) if latency is None and rate is None else None,
        )

    own = {name: terms(fit) for name, fit in fits.items() if name in PASSES}
    return Model(name="the calibration", base=terms(base), own=own)


def _valid(fit: Fit) -> tuple[Size, Size] | None:
    if fit.valid_bytes is None:
        return None
    low, high = fit.valid_bytes
    return Size.from_bytes(low), Size.from_bytes(high)
