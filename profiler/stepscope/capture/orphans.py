"""No process outlives the one that started it."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
"""prctl(2), Linux alone."""

POLL_SECONDS = 0.05


def die_with_parent(number: signal.Signals) -> None:
    """Have the kernel send this process the signal when its parent is gone; nothing where there is no Linux."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, int(number), 0, 0, 0)


def die_with_launcher(pid: int) -> None:
    """For torchrun, before its slow imports: end its ranks with the launcher, and at once if that is gone already."""
    die_with_parent(signal.SIGTERM)
    if os.getppid() != pid:
        sys.exit(1)


def die_with_agent() -> None:
    """For a rank, before its slow imports: end with torchrun, and at once if that is gone already.

    A signal that reaches torchrun while it starts a rank can make it forget that one.
    """
    die_with_parent(signal.SIGKILL)
    if sys.platform == "linux" and os.getppid() == 1:
        sys.exit(1)


def adopt_orphans() -> None:
    """Become the parent of whatever a child of this process leaves behind, so that `end_below` finds it."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def end_below(pid: int, grace_seconds: float = 2.0) -> None:
    """End all processes below `pid`, by SIGTERM and after the grace by SIGKILL; nothing where there is no Linux."""
    asked: set[int] = set()
    deadline = time.monotonic() + grace_seconds
    while found := set(_below(pid)):
        late = time.monotonic() >= deadline
        for process in found if late else found - asked:
            with suppress(ProcessLookupError):  # it has ended meanwhile
                os.kill(process, signal.SIGKILL if late else signal.SIGTERM)
        asked |= found
        time.sleep(POLL_SECONDS)


def _below(pid: int) -> list[int]:
    """Children of `pid`, theirs, and so on; those that have ended and are not waited for are none."""
    children: dict[int, list[int]] = {}
    for file in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it has ended meanwhile
            state, parent = file.read_text().rpartition(")")[2].split()[:2]
            if state not in "ZX":
                children.setdefault(int(parent), []).append(int(file.parent.name))
    found = list(children.get(pid, ()))
    for process in found:
        found += children.get(process, ())
    return found
