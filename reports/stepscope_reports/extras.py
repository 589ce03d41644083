"""Reports that need more than the base install say in one line what to install."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from stepscope.errors import InputError


@contextmanager
def extra(name: str) -> Iterator[None]:
    """Import the packages of an optional extra in here; raises InputError with the command to run where one is missing."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise InputError(f"this report needs {error.name}: pip install 'stepscope[{name}]'") from error
