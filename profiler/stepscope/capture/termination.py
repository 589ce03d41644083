"""Signals that come while a recording is going on: what was recorded is written before they have their effect."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from types import FrameType
from typing import Any


class TerminationGuard:
    """Holds SIGTERM and SIGINT off for as long as a trace is being written, and calls `save` before SIGTERM ends the process.

    Only during a recording, and only where the script has no handlers of its own: a rank that hangs in a collective cannot run a
    handler, and must die of the signal as it does unrecorded. SIGINT stays KeyboardInterrupt.
    """

    def __init__(self, save: Callable[[str], None]) -> None:
        self._save = save
        self._busy = 0
        self._held: int | None = None

    def recording(self, active: bool) -> None:
        """A recording begins, or is over."""
        defaults: dict[signal.Signals, Any] = {
            signal.SIGTERM: signal.SIG_DFL,
            signal.SIGINT: signal.default_int_handler,
        }
        for number, default in defaults.items():
            if signal.getsignal(number) in (default, self._handle):
                signal.signal(number, self._handle if active else default)

    def __enter__(self) -> None:
        """A trace is being written; may be nested."""
        self._busy += 1

    def __exit__(self, *_exception: object) -> None:
        self._busy -= 1
        if not self._busy and self._held is not None:
            number, self._held = self._held, None
            self._handle(number, None)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self._busy:
            self._held = number
        elif number == signal.SIGINT:
            signal.default_int_handler(number, frame)
        else:
            # a scheduler tells all processes, and torchrun passes it on to us
            signal.signal(number, signal.SIG_IGN)
            try:
                self._save(f"ended by {signal.Signals(number).name}")
            finally:
                signal.signal(number, signal.SIG_DFL)
                os.kill(os.getpid(), number)
