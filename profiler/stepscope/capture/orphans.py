"""No process outlives the one that started it."""

from __future__ import annotations

import ctypes
import signal
import sys

PR_SET_PDEATHSIG = 1
"""prctl(2), Linux alone."""


def die_with_parent(number: signal.Signals) -> None:
    """Have the kernel send this process the signal when its parent is gone; nothing where there is no Linux."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, int(number), 0, 0, 0)
