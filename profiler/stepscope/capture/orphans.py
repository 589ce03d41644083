"""No process outlives the one that started it."""

from __future__ import annotations

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1
"""prctl(2), Linux alone."""


def die_with_parent(number: signal.Signals) -> None:
    """Have the kernel send this process the signal when its parent is gone; nothing where there is no Linux."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, int(number), 0, 0, 0)


def die_with_agent() -> None:
    """For a rank, before its slow imports: end with torchrun, and at once if that is gone already.

    A signal that reaches torchrun while it starts a rank can make it forget that one.
    """
    die_with_parent(signal.SIGKILL)
    if sys.platform == "linux" and os.getppid() == 1:
        sys.exit(1)
