"""What other packages add by entry points, found and called; a fault of theirs becomes one line that names the package."""

from __future__ import annotations

import functools
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.metadata import EntryPoint, EntryPoints, entry_points
from pathlib import Path
from typing import Any

from stepscope.errors import InputError, StepscopeError

_OWN = "stepscope"
_MACHINERY = {"importlib", "importlib_metadata"}
"""Packages whose files tell nothing of where another one failed; the second takes the place of a part of the first."""


def installed(group: str) -> dict[str, EntryPoint]:
    """The entry points of a group by name; where two packages claim one, ours stays, and else the first on the path."""
    found: dict[str, EntryPoint] = {}
    for point in _among_all(tuple(sys.path))(group=group):
        if point.name not in found or (_is_ours(point) and not _is_ours(found[point.name])):
            found[point.name] = point
    return found


@functools.lru_cache(maxsize=1)
def _among_all(path: tuple[str, ...]) -> Callable[..., EntryPoints]:
    """Selects among the entry points of all packages on the path: looking for them reads a file of each."""
    return entry_points().select


def load(point: EntryPoint) -> Callable[..., Any]:
    """The function that an entry point names. Raises InputError, then and when it is called, where another package fails."""
    if _is_ours(point):
        ours: Callable[..., Any] = point.load()
        return ours
    with blamed(point):
        loaded: Callable[..., Any] = point.load()

    @functools.wraps(loaded)
    def call(*arguments: Any) -> Any:
        with blamed(point):
            return loaded(*arguments)

    return call


@contextmanager
def blamed(point: EntryPoint) -> Iterator[None]:
    """What another package raises in here names the package, the place and the way out. Our own faults stay as they are.

    So do errors of the system: a full disk or a closed pipe is no fault of who writes to it.
    """
    try:
        yield
    except (StepscopeError, OSError):
        raise
    except Exception as error:
        if _is_ours(point):
            raise
        raise InputError(
            f"{_name(point)} failed: {_what(error)}; update or uninstall that package"
        ) from error


def _is_ours(point: EntryPoint) -> bool:
    return point.dist is not None and point.dist.name == _OWN


def _name(point: EntryPoint) -> str:
    package = (
        "another package" if point.dist is None else f"the package {point.dist.name} {point.dist.version}"
    )
    return f"{point.name!r} ({point.group}) of {package}"


def _is_machinery(file: str) -> bool:
    return file.startswith("<") or file == __file__ or not _MACHINERY.isdisjoint(Path(file).parts)


def _what(error: Exception) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    places = [frame for frame in frames if not _is_machinery(frame.filename)]
    where = f" ({Path(places[-1].filename).name}, line {places[-1].lineno})" if places else ""
    return f"{type(error).__name__}: {error}{where}"
