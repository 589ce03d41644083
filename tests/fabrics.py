"""What tests need to use real network namespaces, and to see whether any are left."""

from __future__ import annotations

import os
import re
import shutil
import sys
import time
from pathlib import Path

import pytest

_IDENTITY = re.compile(r"net:\[\d+\]")


def why_no_namespaces() -> str | None:
    """Why this machine can't emulate a fabric; None where it can."""
    if sys.platform != "linux":
        return "needs Linux network namespaces"
    if os.geteuid() != 0:
        return "needs root to make network namespaces"
    missing = [program for program in ("ip", "tc") if shutil.which(program) is None]
    return f"needs {missing} of iproute2" if missing else None


needs_namespaces = pytest.mark.skipif(why_no_namespaces() is not None, reason=why_no_namespaces() or "")


def held_by(pid: int) -> set[str]:
    """The network namespaces that a process holds open or runs in, as the kernel names them."""
    links = [Path(f"/proc/{pid}/ns/net"), *Path(f"/proc/{pid}/fd").glob("*")]
    return {text for link in links if (text := _target(link)) is not None}


def run_in(pid: int) -> str | None:
    """The network namespace that a process runs in."""
    return _target(Path(f"/proc/{pid}/ns/net"))


def in_use() -> set[str]:
    """The network namespaces that any process holds or runs in."""
    return set().union(*(held_by(int(entry.name)) for entry in Path("/proc").glob("[0-9]*")))


def wait_until_gone(namespaces: set[str], seconds: float = 30.0) -> set[str]:
    """Those that are still in use after a while at most."""
    end = time.monotonic() + seconds
    while (left := namespaces & in_use()) and time.monotonic() < end:
        time.sleep(0.1)
    return left


def _target(link: Path) -> str | None:
    try:
        text = str(link.readlink())
    except OSError:
        return None
    return text if _IDENTITY.fullmatch(text) else None
