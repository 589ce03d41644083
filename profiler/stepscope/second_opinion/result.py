"""The result of a second opinion as plain data: schema `stepscope.second-opinion/1`.

Shares from 0 to 1, times in ms. What does not apply is absent, never NaN. The schema only ever grows.
"""

from __future__ import annotations

import msgspec

SCHEMA = "stepscope.second-opinion/1"


class _Plain(msgspec.Struct, omit_defaults=True, frozen=True, kw_only=True):
    """Absent (None) fields are left out of the JSON."""


class Rung(_Plain, frozen=True, kw_only=True):
    """One definition changed, on the way from our figure to the peer's; all others as in the rungs before."""

    definition: str
    """What is counted from here on."""
    value: float | None = None
    """Our own data under it."""


class Figure(_Plain, frozen=True, kw_only=True):
    """One figure of one file, by us and by the peer."""

    figure: str
    unit: str
    """ "share" or "ms"."""
    ours: float | None = None
    """By our own definition: the first rung."""
    theirs: float | None = None
    """What the peer says; absent where it gives no number."""
    rungs: list[Rung] = []
    """From our definition to the peer's, one step at a time."""
    theirs_by_us: float | None = None
    """Our data under the peer's definition: the last rung."""
    unexplained: float | None = None
    """theirs - theirs_by_us."""
    tolerance: float
    """How far the two may lie apart: the peer's own rounding."""
    agrees: bool | None = None
    """Whether the peer's definition, on our data, gives the peer's figure; absent where it gave none."""


class Opinion(_Plain, frozen=True, kw_only=True):
    """One peer on one file."""

    peer: str
    source: str
    rank: int | None = None
    error: str | None = None
    """Why it gave nothing, in one line."""
    figures: list[Figure] = []
    remarks: list[str] = []
    """What of its reading of this file a user should know: kernels it takes for compute, steps it leaves out."""


class Peer(_Plain, frozen=True, kw_only=True):
    """One of the tools that were asked."""

    name: str
    version: str | None = None
    missing: str | None = None
    """What to do where it is not installed."""


class SecondOpinion(msgspec.Struct, frozen=True, kw_only=True):
    """All that a report of a second opinion sees."""

    schema: str = SCHEMA
    stepscope: str
    """Version that made it."""
    peers: list[Peer]
    opinions: list[Opinion]
    """By file, then by peer."""
