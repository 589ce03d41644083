"""Conversions of decoded rows' identifiers and arguments."""

from __future__ import annotations

import re
from itertools import compress
from typing import Any
from zlib import crc32

import msgspec
import numpy as np
from numpy.typing import NDArray

from stepscope.trace.columns import NO_ID, Category, CommArguments, Shapes, WaitedEvent
from stepscope.trace.rows import Arguments, Span

ON_DEVICE = np.zeros(256, dtype=np.bool_)
"""By category, whether it is an activity of the device."""
ON_DEVICE[[Category.KERNEL, Category.MEMCPY, Category.MEMSET, Category.CUDA_SYNC]] = True

_LAST_NUMBER = re.compile(r"(?:^|\s)(-?\d+)\s*$")
_NO_ARGUMENTS = Arguments()


def integer(value: object) -> int | None:
    """The value as an integer of 64 bits, or None."""
    if isinstance(value, str):
        try:
            value = int(value)
        except ValueError:
            return None
    if isinstance(value, int) and -(1 << 63) <= value < 1 << 63:
        return value
    return None


def _count(value: object) -> int | None:
    """The value as a number of things, None where it can't be one."""
    number = integer(value)
    return number if number is not None and 0 <= number < 1 << 56 else None


def _integers(values: list[Any]) -> NDArray[np.int64]:
    try:
        return np.fromiter(values, np.int64, len(values))
    except (TypeError, ValueError, OverflowError):
        return np.array(
            [NO_ID if (number := integer(value)) is None else number for value in values], np.int64
        )


def links(
    spans: list[Span], category: NDArray[np.uint8]
) -> tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.int64]]:
    """Correlation of launches and device activities; device and stream of the latter; NO_ID for all others."""
    correlation = np.full(len(spans), NO_ID, dtype=np.int64)
    linked = category != Category.CPU_OP
    correlation[linked] = _integers(
        [(span.args or _NO_ARGUMENTS).correlation for span in compress(spans, linked)]
    )
    device = np.full(len(spans), NO_ID, dtype=np.int32)
    stream = np.full(len(spans), NO_ID, dtype=np.int64)
    placed = ON_DEVICE[category]
    if placed.any():
        rows = list(compress(spans, placed))
        arguments = [row.args or _NO_ARGUMENTS for row in rows]
        given = _places([given.device for given in arguments], [row.pid for row in rows])
        device[placed] = np.where(np.abs(given) < 1 << 31, given, NO_ID)
        stream[placed] = _places([given.stream for given in arguments], [row.tid for row in rows])
    return correlation, device, stream


def _places(arguments: list[Any], rows: list[Any]) -> NDArray[np.int64]:
    """Device or stream numbers: the argument or, where it is absent, the label of the row."""
    try:
        return np.array(arguments, dtype=np.int64)
    except (TypeError, ValueError, OverflowError):
        return np.array([_place(*pair) for pair in zip(arguments, rows, strict=True)], dtype=np.int64)


def _place(argument: object, row: object) -> int:
    """A row's label ("stream 7") ends with its number."""
    given = row if argument is None else argument
    if isinstance(given, str):
        last = _LAST_NUMBER.search(given)
        given = last[1] if last else None
    number = integer(given)
    return NO_ID if number is None else number


def comm_arguments(given: Arguments) -> CommArguments:
    """What an event says of its communication; values of an odd type are absent."""
    return CommArguments(
        collective=given.collective,
        elements_in=_count(given.elements_in),
        elements_out=_count(given.elements_out),
        dtype=given.dtype,
        group_name=given.group_name,
        group_description=given.group_description,
        group_size=_count(given.group_size) or None,
        group_ranks=_ranks(given.group_ranks),
        sequence=integer(given.sequence),
    )


def _ranks(given: str | list[Any] | None) -> tuple[int, ...] | None:
    """Ranks of a group, a list or its text; None where it is absent or, as for large groups, abbreviated."""
    try:
        if isinstance(given, str):
            return msgspec.json.decode(given, type=tuple[int, ...])
        return msgspec.convert(given, type=tuple[int, ...] | None)
    except msgspec.DecodeError:
        return None


def waited_event(given: Arguments) -> WaitedEvent | None:
    """The event that a synchronisation row waits for; None where it says of none, or not by which call it was recorded."""
    stream, correlation = integer(given.waited_stream), integer(given.waited_correlation)
    if stream is None or correlation is None or min(stream, correlation) < 0:
        return None
    return WaitedEvent(stream, correlation)


def shapes(given: Arguments) -> Shapes | None:
    """The shapes of an operator's inputs, None where they were not recorded."""
    if not bytes(given.dims):
        return None
    try:
        dims = msgspec.json.decode(given.dims, type=list[Any])
        types = msgspec.json.decode(given.types, type=list[str]) if bytes(given.types) else []
    except msgspec.DecodeError:
        return None
    return Shapes(dims, types)


def row_numbers(values: list[Any]) -> NDArray[np.int64]:
    """Process or thread ids as numbers, see `row_number`."""
    try:
        return np.fromiter(values, np.int64, len(values))
    except (TypeError, ValueError, OverflowError):
        return np.array([row_number(value) for value in values], dtype=np.int64)


def row_number(value: object) -> int:
    """An id as a number: itself, or for other text a negative one of its own, the same wherever it is read."""
    number = integer(value)
    return -2 - crc32(str(value).encode()) if number is None else number
