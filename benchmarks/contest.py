"""Contestants on one trace, in turns: each run is a process of its own, so that a busy machine is unfair to all alike."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import BinaryIO

_SCRIPT = Path(__file__).with_name("contestants.py")
LABELS = {
    "floor": "floor: inflate, count events",
    "read": "stepscope: read",
    "overlap": "stepscope: load, overlap",
    "audit": "stepscope: whole audit",
    "hta": "HolisticTraceAnalysis: load, overlap",
    "tb_profiler": "torch-tb-profiler: load, overview",
    "tracelens": "TraceLens: load, breakdown",
}
OURS = ("floor", "read", "overlap", "audit")


@dataclass(slots=True)
class Contestant:
    """One program and its runs on one trace; the lists have a value a round."""

    name: str
    python: str
    path: str | None = None
    """What goes on the import path."""
    version: str = ""
    seconds: list[float] = field(default_factory=list)
    """From start to exit of the process, interpreter and imports included."""
    cpu_seconds: list[float] = field(default_factory=list)
    """Of all its threads and processes."""
    peak_mb: list[float] = field(default_factory=list)
    found: str = ""
    failure: str | None = None

    @property
    def label(self) -> str:
        """Its name and what it does."""
        peer, _, does = LABELS[self.name].partition(":")
        return f"{peer} {self.version}:{does}" if self.version else LABELS[self.name]

    def run(self, trace: Path, limit_s: int) -> None:
        """Run once; a failure is kept and ends this contestant's part."""
        with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
            began = time.perf_counter()
            process = subprocess.Popen(
                [self.python, str(_SCRIPT), self.name, str(trace)],
                stdout=output,
                stderr=errors,
                env=_environment(self.path),
            )
            limit = threading.Timer(limit_s, process.kill)
            limit.start()
            _, status, usage = os.wait4(process.pid, 0)
            took = time.perf_counter() - began
            limit.cancel()
            process.returncode = os.waitstatus_to_exitcode(status)
            if process.returncode:
                self.failure = _last_line(errors) or f"exit code {process.returncode}"
                return
            said = json.loads(_last_line(output))
        self.seconds.append(took)
        self.cpu_seconds.append(usage.ru_utime + usage.ru_stime)
        self.peak_mb.append(said["peak_bytes"] / 1e6)
        self.found, self.version = said["found"], said["version"] or self.version


def _environment(path: str | None) -> dict[str, str]:
    """That of a package which pip installed: its modules are compiled, and a start does not compile them again.

    Where PYTHONDONTWRITEBYTECODE is set, a package that is used from its sources never gets compiled files, unlike the
    peers in site-packages: each of its runs would compile all of its modules.
    """
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return environment | ({"PYTHONPATH": path} if path else {})


def _last_line(file: BinaryIO) -> str:
    file.seek(0)
    lines = file.read().decode(errors="replace").strip().splitlines()
    return lines[-1] if lines else ""


def warm_up(contestants: Sequence[Contestant], trace: Path, limit_s: int) -> list[Contestant]:
    """The contestants, after one run of each that counts nowhere: it compiles what was not; best on a small trace.

    What fails here fails for the same reason on a large trace, after a longer time: its part ends now.
    """
    ready = []
    for one in contestants:
        print(f"warm-up: {LABELS[one.name]}", file=sys.stderr)
        trial = Contestant(one.name, one.python, one.path, one.version)
        trial.run(trace, limit_s)
        ready.append(
            Contestant(one.name, one.python, one.path, trial.version or one.version, failure=trial.failure)
        )
    return ready


def compete(
    contestants: Sequence[Contestant], trace: Path, runs: int, peer_runs: int, limit_s: int
) -> list[Contestant]:
    """The contestants with their runs on the trace: all that still have one to do in each round, one after another."""
    fresh = [Contestant(c.name, c.python, c.path, c.version, failure=c.failure) for c in contestants]
    trace.read_bytes()  # so that the first of them does not wait for the disk
    for turn in range(max(runs, peer_runs)):
        for one in fresh:
            if turn < (runs if one.name in OURS else peer_runs) and one.failure is None:
                print(f"round {turn + 1}: {LABELS[one.name]}", file=sys.stderr)
                one.run(trace, limit_s)
    return fresh


def ratios(one: Contestant, other: Contestant) -> list[float]:
    """The wall time of one in that of the other, round by round: what slows the machine down for a while slows both."""
    return [mine / theirs for mine, theirs in zip(one.seconds, other.seconds, strict=False)]


def times(one: Contestant, other: Contestant) -> float | None:
    """How many times as long one takes as the other: the median of the rounds; None where either did not run."""
    found = ratios(one, other)
    return median(found) if found else None
