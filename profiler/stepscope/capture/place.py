"""Where ranks run when they have networks of their own: a network namespace each, entered before anything opens a socket."""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

import msgspec

VARIABLE = "STEPSCOPE_PLACES"
"""The environment variable that tells a rank its place; it takes it out again."""

CLONE_NEWNET = 0x40000000
"""From sched.h: the kind of namespace that setns(2) is to enter."""

_OWN = "/proc/thread-self/ns/net"


class Place(Protocol):
    """Where one rank runs."""

    @property
    def namespace(self) -> str:
        """The network namespace, as a path that exists for as long as the launcher lives."""

    @property
    def environment(self) -> Mapping[str, str]:
        """Variables to set there, over those of the launcher."""


class Fabric(Protocol):
    """A network made for the ranks of one launch; any package can bring one, under the entry-point group of `fabric`."""

    @property
    def namespace(self) -> str:
        """Where torchrun's own store listens."""

    @property
    def ranks(self) -> Sequence[Place]:
        """The ranks' places, in order."""

    @property
    def description(self) -> Mapping[str, Any]:
        """What to keep with a measurement: plain data."""


def variables(fabric: Fabric | None) -> dict[str, str]:
    """What the launcher puts into the ranks' environment; nothing where there is no fabric."""
    if fabric is None:
        return {}
    places = [(place.namespace, dict(place.environment)) for place in fabric.ranks]
    return {VARIABLE: msgspec.json.encode(places).decode()}


def enter_own() -> None:
    """In a rank, before it does anything else: go to its place, if it has one.

    Only the calling thread moves, and the threads it starts later. The launcher must be alive.
    """
    text = os.environ.pop(VARIABLE, None)
    if text is None:
        return
    namespace, environment = msgspec.json.decode(text, type=list[tuple[str, dict[str, str]]])[
        int(os.environ["RANK"])
    ]
    try:
        _enter(namespace)
    except FileNotFoundError:
        sys.exit(1)  # the launcher is gone, and its fabric with it
    os.environ.update(environment)


@contextmanager
def inside(fabric: Fabric | None) -> Iterator[None]:
    """Processes started meanwhile by this thread start in the fabric's own namespace; here, if there is no fabric."""
    if fabric is None:
        yield
        return
    with Path(_OWN).open("rb") as before:
        _enter(fabric.namespace)
        try:
            yield
        finally:
            _setns(before.fileno())


def _enter(namespace: str) -> None:
    with Path(namespace).open("rb") as file:
        _setns(file.fileno())


def _setns(file: int) -> None:
    """os.setns came with Python 3.12."""
    if ctypes.CDLL(None, use_errno=True).setns(file, CLONE_NEWNET):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), "setns")
