"""Peers asked in a process of their own, within a limit of time and memory: a crash or a hang of theirs is an answer."""

from __future__ import annotations

import importlib.metadata
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec

INSTALL = "pip install 'stepscope[second-opinion]'"


@dataclass(frozen=True, slots=True)
class Limits:
    """What a peer may take for all files together: seconds, and bytes of memory."""

    seconds: float = 300.0
    memory_bytes: int = 8 << 30


class Reply(msgspec.Struct):
    """One line of a peer's process."""

    source: str
    answer: dict[str, float] = {}
    error: str | None = None


@dataclass(frozen=True, slots=True)
class Asked:
    """What a peer said. replies: by file; a file without one has `ended` to say why."""

    replies: dict[str, Reply] = field(default_factory=dict)
    ended: str | None = None


def version_of(distribution: str) -> str | None:
    """The installed version, None where it is not installed."""
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None


def ask(module: str, files: Sequence[Path], limits: Limits) -> Asked:
    """Run `python -m module MEMORY FILE...` and gather its lines. What it leaves among temporary files is taken away."""
    with TemporaryDirectory(prefix="stepscope-peer-", ignore_cleanup_errors=True) as scratch:
        return _ask(module, files, limits, scratch)


def _ask(module: str, files: Sequence[Path], limits: Limits, scratch: str) -> Asked:
    command = [
        sys.executable,
        "-m",
        module,
        str(limits.memory_bytes),
        *(str(file.resolve()) for file in files),
    ]
    # One thread for linear algebra: each reserves memory, which would count against the limit.
    one_thread = dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        stdin=subprocess.DEVNULL,
        env={**os.environ, **one_thread, "TMPDIR": scratch},
        start_new_session=True,
    )
    ended = None
    try:
        output, _ = process.communicate(timeout=limits.seconds)
    except subprocess.TimeoutExpired:
        ended = f"not done after {limits.seconds:g} s; raise --time-limit"
        output = _stop(process)
    finally:
        if process.poll() is None:
            _stop(process)
    if ended is None and process.returncode:
        ended = _why(process.returncode)
    replies = [msgspec.json.decode(line, type=Reply) for line in output.splitlines() if line.startswith(b"{")]
    return Asked({reply.source: reply for reply in replies}, ended)


def _stop(process: subprocess.Popen[bytes]) -> bytes:
    """End the peer and whatever it started; hand back what it had written."""
    os.killpg(process.pid, signal.SIGKILL)
    output: bytes = process.communicate()[0]
    return output


def _why(code: int) -> str:
    if code < 0:
        return f"its process ended by {signal.Signals(-code).name}"
    return f"its process ended with exit code {code}"
