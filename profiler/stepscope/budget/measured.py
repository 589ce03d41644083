"""What a calibration measured: `fabric.json` as plain data, and its reader. GB is 1e9 bytes."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import msgspec

from stepscope.budget.quantities import Rate, Size, Time
from stepscope.errors import InputError

SCHEMA = "stepscope.fabric/1"

MOST_OFF = 0.5
"""A fit that is off by more, at any of the sizes that it was made of, is none to predict with."""

WIDEST = 3.0
"""Nor is one whose interval of B has ends that are further apart than by this factor."""

TOO_LONG = 2.0
"""Nor is one whose alpha is longer than the shortest operation took, by this factor: a hop is part of every operation."""


class Point(msgspec.Struct, frozen=True, kw_only=True):
    """One size of one collective, with nccl-tests' columns. Times are of one operation on the slowest rank."""

    bytes: int
    """Of the whole array."""
    repetitions: int
    operations: int
    """Back to back in each repetition."""
    time_us: float
    """The median of the repetitions."""
    time_us_quartiles: tuple[float, float]
    algbw_gb_per_s: float
    """bytes / time."""
    busbw_gb_per_s: float
    """algbw times the share of the bytes that passes a rank's link: comparable with the link's rate."""
    model_us: float | None
    """By the fit."""
    residual: float | None
    """model / time - 1: above 0 where the fit says longer than it took."""


class Fit(msgspec.Struct, frozen=True, kw_only=True):
    """`time = max(floor, hops alpha + volume bytes / B)`, with 95 % bootstrap intervals over the repetitions."""

    alpha_us: float
    alpha_us_interval: tuple[float, float]
    bandwidth_gb_per_s: float
    bandwidth_gb_per_s_interval: tuple[float, float | None]
    """Without an upper end where the times leave it open."""
    floor_us: float | None
    """What short operations take, if that is more than the line says for them."""
    fitted_from_bytes: int
    """alpha and B are fitted to the sizes from here on."""
    valid_bytes: tuple[int, int] | None
    """The sizes from and to which the residual is at most `tolerance`; None where that is no range."""
    tolerance: float


class Collective(msgspec.Struct, frozen=True, kw_only=True):
    """One collective's sizes and fit."""

    name: str
    hops: int
    """Messages one after the other: 2(P-1) for a ring all-reduce, P-1 for the others."""
    volume: float
    """The share of the bytes that passes each rank's link, nccl-tests' factor of the bus bandwidth."""
    points: list[Point]
    fit: Fit | None
    remarks: list[str] = []
    """Where the fit does not hold, and what was not measured."""

    def predicted(self, size: Size) -> Time:
        """How long the fit says that an operation on so many bytes takes. There must be a fit."""
        assert self.fit is not None
        transfer = size * self.volume / Rate.from_gb_per_s(self.fit.bandwidth_gb_per_s)
        line = self.hops * Time.from_us(self.fit.alpha_us) + transfer
        return max(line, Time.from_us(self.fit.floor_us or 0.0))


class Calibration(msgspec.Struct, frozen=True, kw_only=True):
    """A measured process group: the contents of fabric.json."""

    schema: str = SCHEMA
    date: str
    """UTC, ISO 8601."""
    hosts: list[str]
    world_size: int
    backend: str
    device: str
    transport: str
    """What the backend ran over, as far as it is known."""
    emulated: dict[str, Any] | None
    """The emulated fabric's rates and layout; None on a real network."""
    alpha_us: float | None
    """Of the collective `source`, and so on: what a cost model should take."""
    alpha_us_interval: tuple[float, float] | None
    bandwidth_gb_per_s: float | None
    bandwidth_gb_per_s_interval: tuple[float, float | None] | None
    valid_bytes: tuple[int, int] | None
    source: str | None
    collectives: list[Collective]
    command: list[str]
    versions: dict[str, str]
    environment: dict[str, str]
    """Variables that change how the backend communicates."""
    unusable: str | None = None
    """Why nothing should be predicted with alpha and B, where that is so; `read_fabric` says it of older files too."""

    def collective(self, name: str) -> Collective | None:
        """The one of that name, if it was measured."""
        return next((one for one in self.collectives if one.name == name), None)


def why_unusable(one: Collective) -> str | None:
    """What in its times speaks against predicting with this fit, as half a sentence; None for a fit that will do."""
    fit = one.fit
    if fit is None:
        return None
    shortest = min((point.time_us for point in one.points), default=fit.alpha_us)
    if fit.alpha_us > shortest * TOO_LONG:
        return f"alpha, one hop, is {fit.alpha_us:.0f} us, but a whole {one.name} took {shortest:.0f} us"
    fitted = [point for point in one.points if point.bytes >= fit.fitted_from_bytes]
    worst = max((abs(point.residual or 0.0) for point in fitted), default=0.0)
    if worst > MOST_OFF:
        return f"the fit is off by up to {100 * worst:.0f} % at sizes that it was made of"
    low, high = fit.bandwidth_gb_per_s_interval
    if high is not None and high > WIDEST * low:
        return f"the times leave B anywhere from {low:.3g} to {high:.3g} GB/s"
    if fit.valid_bytes is None:
        return f"the fit holds nowhere within {100 * fit.tolerance:.0f} %"
    return None


def not_usable(why: str, name: str = "This calibration") -> str:
    """The warning that goes before everything else that a reader is told."""
    return f"{name} is not usable: {why}. Repeat it on a quiet machine, or with more repetitions, before you act on it."


class _Head(msgspec.Struct):
    schema: str = ""


def read_fabric(path: str | Path, *, host: str | None = None) -> Calibration:
    """Read a fabric.json that was measured on this machine, or on `host`.

    Raises InputError where the file is none, is of another schema, or was measured elsewhere: another machine's network says
    nothing of this one's.
    """
    try:
        content = Path(path).read_bytes()
    except OSError as error:
        raise InputError(
            f"cannot read {path}: {error.strerror}; `stepscope calibrate --out {path}` makes one"
        ) from error
    try:
        schema = msgspec.json.decode(content, type=_Head).schema
        if schema != SCHEMA:
            raise InputError(
                f"{path} is no {SCHEMA} file{f' but {schema}' if schema else ''}; make one with `stepscope calibrate`"
            )
        made = msgspec.json.decode(content, type=Calibration)
    except msgspec.MsgspecError as error:
        raise InputError(f"{path} is damaged ({error}); make it anew with `stepscope calibrate`") from error
    here = socket.gethostname() if host is None else host
    if here not in made.hosts:
        raise InputError(
            f"{path} was measured on {', '.join(made.hosts)}, not on {here}; run `stepscope calibrate` here"
        )
    source = made.collective(made.source or "")
    return made if source is None else msgspec.structs.replace(made, unusable=why_unusable(source))
