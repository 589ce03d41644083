"""A forked child of a rank is the script's own: whatever of ours it inherits is off there, from its first moment on."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading
import weakref
from typing import Protocol


class Inherited(Protocol):
    """What a forked child gets a copy of."""

    def turn_off(self) -> None:
        """This is the child: leave torch and the signals as they were found, and do nothing any more."""


_inherited: weakref.WeakSet[Inherited] = weakref.WeakSet()
_mask = threading.local()


def off_in_forked_children(one: Inherited) -> None:
    """Have `turn_off` called in every process that is forked from this one."""
    _inherited.add(one)


def leave_without_destructors() -> None:
    """Have this process end, by whatever exit, once Python is done: the C++ destructors of its libraries do not run.

    What C's own streams hold is written all the same. Nothing where there is no glibc.
    """
    libc = ctypes.CDLL(None)
    if sys.platform == "linux" and hasattr(libc, "on_exit"):
        libc.on_exit(libc._exit, None)  # handlers are called with the exit status, the last one first
        libc.on_exit(libc.fcloseall, None)


def _hold_sigterm() -> None:
    """A child that is told to end before its handlers are its own would lose the signal: CPython forgets what is pending."""
    _mask.before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})


def _release_sigterm() -> None:
    signal.pthread_sigmask(signal.SIG_SETMASK, _mask.before)


def _turn_all_off() -> None:
    try:
        for one in list(_inherited):
            one.turn_off()
    finally:
        _release_sigterm()


os.register_at_fork(before=_hold_sigterm, after_in_parent=_release_sigterm, after_in_child=_turn_all_off)
