"""Numbers in files that are too large to be anybody's time, size or count, refused where a file is read."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from stepscope.errors import InputError

LARGEST = 2.0**63
"""What the analysis counts in; as nanoseconds it is the year 2262."""
_SUSPECT = re.compile(rb"\d{20,}|[eE]\+?(?:[2-9]\d|\d{3,})")


def refuse_too_large(content: bytes, file: str | Path) -> None:
    """Raise InputError for JSON with a number of 2**63 or more, or below -2**63, saying where it is.

    JSON has no limit, and Python's integers have none either: what computes with them fails far from here.
    """
    if not _SUSPECT.search(content):
        return
    for place, number in _numbers(msgspec.json.decode(content), ""):
        if abs(number) >= LARGEST:
            raise InputError(
                f"{file}: {place.lstrip('.')} is {_shown(number)}, too large to be true; make the file again"
            )


def _numbers(value: Any, place: str) -> Iterator[tuple[str, int | float]]:
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from _numbers(inner, f"{place}.{name}")
    elif isinstance(value, list):
        for number, inner in enumerate(value):
            yield from _numbers(inner, f"{place}[{number}]")
    elif isinstance(value, (int, float)):
        yield place, value


def _shown(number: int | float) -> str:
    return f"{number:g}" if isinstance(number, float) else f"a number of {len(str(abs(number)))} digits"
