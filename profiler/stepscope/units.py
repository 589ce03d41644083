"""How figures are written for people: one place, so that two reports never round alike figures differently.

Message sizes are binary (1 MiB is 2**20 bytes), as DDP's bucket_cap_mb counts them; rates are decimal (1 GB/s is 1e9
bytes a second), as links are sold.
"""

from __future__ import annotations

from collections.abc import Iterable

_SIZES = ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB"))


def decimals(values: Iterable[float]) -> int:
    """Decimals that give a column of times in ms about three significant digits at its largest value."""
    largest = max((abs(value) for value in values), default=0.0)
    for limit, places in ((1000, 0), (100, 1), (1, 2)):
        if largest >= limit:
            return places
    return 3


def in_column(value: float, places: int) -> str:
    """A time of a column with so many decimals; below 100 ms it has one at least, however large the others are."""
    return f"{value:,.{max(places, 1) if abs(value) < 100 else places}f}"


def milliseconds(value: float, places: int | None = None) -> str:
    """A time in ms, with its unit: `412.3 ms`."""
    return f"{value:,.{decimals((value,)) if places is None else places}f} ms"


def percent(share: float) -> str:
    """A share from 0 to 1 as `31.5 %`."""
    return f"{100 * share:.1f} %"


def size(count: float) -> str:
    """A number of bytes as `25.0 MiB`."""
    for factor, unit in _SIZES:
        if count >= factor:
            return f"{count / factor:.1f} {unit}"
    return f"{count:.0f} B"


def plural(count: int, noun: str) -> str:
    """`1 step`, `2 steps`."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


NS_PER_MS = 1e6


def ns_to_ms(nanoseconds: float) -> float:
    """Nanoseconds as milliseconds, to the nanosecond."""
    return round(float(nanoseconds) / NS_PER_MS, 6)
