"""What a calibration measured: `fabric.json` as plain data, and its reader. GB is 1e9 bytes."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import msgspec

from stepscope.budget.quantities import Rate, Size, Time
from stepscope.errors import InputError

SCHEMA = "stepscope.fabric/1"


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

    def collective(self, name: str) -> Collective | None:
        """The one of that name, if it was measured."""
        return next((one for one in self.collectives if one.name == name), None)


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
    return made
