"""A script that is asked for its own help: run once and alone, since every rank would print it, and nothing recorded."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence

from stepscope.capture.target import Target
from stepscope.errors import InputError


def asks_for_help(arguments: Sequence[str]) -> bool:
    """Whether a script's arguments ask for its help; `-h` among others may be an option of the script's own."""
    return "--help" in arguments or list(arguments) == ["-h"]


def print_help_of(target: Target, arguments: Sequence[str]) -> int:
    """Run the script once, without ranks. Raises InputError where it fails, as a script without a help of its own may."""
    name = ["-m", target.name] if target.module else [target.name]
    code = subprocess.run([sys.executable, *name, *arguments], check=False).returncode
    if code:
        raise InputError(
            f"{target.name} ended with exit code {code} when it was asked for its help, in one process without torchrun"
        )
    return 0
