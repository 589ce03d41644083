"""What a rank says to the user: a line on standard error, and never an error of its own."""

from __future__ import annotations

import sys
from contextlib import suppress


def warn(line: str) -> None:
    """On standard error, which may be closed or full: the script goes on."""
    with suppress(OSError, ValueError):
        sys.stderr.write(f"stepscope: {line}\n")
        sys.stderr.flush()
