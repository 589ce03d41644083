"""Kineto's times, microseconds as numbers of several spellings, to exact nanoseconds."""

from __future__ import annotations

import re
from decimal import Decimal, InvalidOperation
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

Nanoseconds = NDArray[np.int64]

_EXACT_BELOW = float(1 << 43)
"""A float of microseconds below this (101 days) lies within half a nanosecond of the three decimals it was read from."""

_LARGEST = 4_000_000_000_000_000
"""Microseconds (127 years) up to which two times' difference and a duration still fit 64 bits of nanoseconds."""

_DIGITS = 20
"""Of the integer part, beyond which a number is not even compared: arithmetic on it could overflow."""

LONGEST = 10**18
"""Nanoseconds (32 years) beyond which a duration is none."""

_THREE_DECIMALS = re.compile(rb"(?:\d+\.\d{3} )+")


class InexactTimes(Exception):
    """Times since the epoch with a fraction: as floats they are a quarter of a microsecond apart."""


def nanoseconds(values: list[Any], *, exact: bool = False) -> tuple[Nanoseconds, NDArray[np.bool_]]:
    """Nanoseconds of numbers or numeric strings, and which of them could be read (0 where not).

    exact: InexactTimes where a float is too large to tell its nanoseconds.
    """
    given = _numbers(values)
    plain = given.dtype in (np.int64, np.float64) and len(given) and np.abs(given).max() <= _LARGEST
    if exact and given.dtype != np.int64:
        floats = given if plain else np.array([value for value in values if isinstance(value, float)])
        if len(floats) and floats.max() >= _EXACT_BELOW:
            raise InexactTimes
    if not plain:
        return _one_by_one(values)
    readable = np.ones(len(given), dtype=np.bool_)
    if given.dtype == np.int64:
        return given * 1000, readable
    # Whole and fraction apart: their product with 1000 is then rounded once, not twice.
    whole = np.floor(given)
    return whole.astype(np.int64) * 1000 + np.rint((given - whole) * 1000).astype(np.int64), readable


def _numbers(values: list[Any]) -> NDArray[Any]:
    """An array of floats if the first value is one, of integers if all are such, and of whatever they are if not."""
    try:
        if values and isinstance(values[0], float):
            return np.array(values, dtype=np.float64)
        # of texts numpy would make an array in which each takes as much room as the longest
        return np.array(values, dtype=None if {int, float}.issuperset(map(type, values)) else np.object_)
    except (ValueError, OverflowError):
        return np.array(values, dtype=np.object_)


def raw_nanoseconds(values: list[msgspec.Raw]) -> tuple[Nanoseconds, NDArray[np.bool_]]:
    """The same for numbers in their JSON text, exact at any size."""
    text = b" ".join((*values, b""))
    if _THREE_DECIMALS.fullmatch(text):
        readable = np.ones(len(values), dtype=np.bool_)
        return np.fromstring(text.replace(b".", b"").decode(), dtype=np.int64, sep=" "), readable
    return _one_by_one([bytes(value).decode().strip('"') for value in values])


def _one_by_one(values: list[Any]) -> tuple[Nanoseconds, NDArray[np.bool_]]:
    times = [_parsed(value) for value in values]
    readable = np.array([time is not None for time in times], dtype=np.bool_)
    return np.array([time or 0 for time in times], dtype=np.int64), readable


def _parsed(value: object) -> int | None:
    try:
        time = Decimal(str(value))
    except InvalidOperation:
        return None
    if not time.is_finite() or time.adjusted() > _DIGITS or abs(time) > _LARGEST:
        return None
    return int((time * 1000).to_integral_value())
