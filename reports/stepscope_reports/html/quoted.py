"""Figures quoted from the audit: each stands in the page with its path in audit.json and its value in full.

A figure is `<data value="0.0479" data-path="/verdict/cost_share">4.8 %</data>`: what is shown is rounded, what is kept is not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import msgspec
from markupsafe import Markup

from stepscope.audit.result import Audit
from stepscope.units import decimals, in_column, percent, size

NOT_KNOWN = "n/a"
NO_BREAK = "\u00a0"

Path = tuple[str | int, ...]


class Quoted:
    """An audit to quote from by path: the keys that lead to a figure in audit.json."""

    def __init__(self, audit: Audit) -> None:
        self._audit = audit

    def value(self, path: Path) -> Any:
        """What stands at a path; None where nothing does."""
        found: Any = self._audit
        for key in path:
            if found is None:
                return None
            found = getattr(found, str(key)) if isinstance(found, msgspec.Struct) else found[key]
        return found

    def figure(self, path: Path, write: Callable[[float], str]) -> Markup:
        """The number at a path, as `write` shows it."""
        value = self.value(path)
        if value is None:
            return Markup(NOT_KNOWN)
        pointer = "".join(f"/{key}" for key in path)
        shown = write(value).replace(" ", NO_BREAK)
        return Markup('<data value="{}" data-path="{}">{}</data>').format(repr(value), pointer, shown)

    def percent(self, *path: str | int) -> Markup:
        """A share as a percentage."""
        return self.figure(path, percent)

    def size(self, *path: str | int) -> Markup:
        """A number of bytes with its binary unit."""
        return self.figure(path, size)

    def count(self, *path: str | int) -> Markup:
        """A whole number."""
        return self.figure(path, lambda value: f"{value:,.0f}")

    def setting(self, *path: str | int) -> Markup:
        """What a user sets, with no more digits than it has."""
        return self.figure(path, lambda value: f"{value:g}")

    def number(self, *path: str | int) -> Markup:
        """A number with three significant digits or so."""
        return self.figure(path, lambda value: f"{value:,.{decimals((value,))}f}")

    def times(self, paths: Iterable[Path]) -> Callable[..., Markup]:
        """A writer of the times of one table, all with as many decimals as its largest needs."""
        known = [value for path in paths if (value := self.value(path)) is not None]
        places = decimals(known)
        return lambda *path: self.figure(path, lambda value: in_column(value, places))
