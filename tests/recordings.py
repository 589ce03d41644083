"""What tests of recording share: starting `stepscope run`, and reading what a recording left."""

from __future__ import annotations

import gzip
import json
import os
import socket
import subprocess
import sys
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stepscope.capture.metadata import RANK_FILE, RUN_FILE, RankMetadata, write_json

SCRIPTS = Path(__file__).with_name("data") / "scripts"
MARKER = "TEST_RUN_MARKER"


@dataclass(frozen=True)
class Finished:
    """A command that has ended; `leftovers` are the processes it left running."""

    code: int
    stdout: str
    stderr: str
    leftovers: list[int]

    @property
    def last_error_line(self) -> str:
        return self.stderr.strip().splitlines()[-1]


class Started:
    """`stepscope run`, or another command, going on."""

    def __init__(self, *arguments: str | Path, cwd: Path | None = None, command: str = "run") -> None:
        self._marker = uuid.uuid4().hex
        self.process = subprocess.Popen(
            [sys.executable, "-m", "stepscope", command, *map(str, arguments)],
            cwd=cwd or SCRIPTS,
            env={**os.environ, MARKER: self._marker},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def finish(self) -> Finished:
        stdout, stderr = self.process.communicate(timeout=200)
        return Finished(self.process.returncode, stdout, stderr, self.leftovers())

    def leftovers(self) -> list[int]:
        """The processes of it that still run."""
        return processes_with(self._marker)


def two_nodes() -> tuple[str, ...]:
    """Arguments for two launches on this machine that find each other as two nodes of one rank each."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    return ("--nnodes=2", "--nproc-per-node=1", "--master-addr=127.0.0.1", f"--master-port={port}")


def run(*arguments: str | Path, cwd: Path | None = None) -> Finished:
    return Started(*arguments, cwd=cwd).finish()


def processes_with(marker: str) -> list[int]:
    """Processes that inherited the marker; a zombie has no environment and does not count."""
    found = []
    for environment in Path("/proc").glob("[0-9]*/environ"):
        try:
            if f"{MARKER}={marker}".encode() in environment.read_bytes():
                found.append(int(environment.parent.name))
        except OSError:
            continue  # it has ended meanwhile, or is another user's
    return found


def leave_an_earlier_recording(run_dir: Path, written: float) -> None:
    """Files of one run that ended, and of another, of three ranks, that was killed; written at that time of day, in s."""
    run_dir.mkdir(exist_ok=True)
    killed = RankMetadata(
        rank=2,
        local_rank=2,
        world_size=3,
        host="earlier",
        pid=1,
        launch_id="killed",
        state="running",
        written_ns=1,
        steps_seen=5,
        device="cpu",
        backend="gloo",
        trace="rank2.1.pt.trace.json.gz",
    )
    write_json(run_dir / RANK_FILE.format(rank=2), killed)
    for name in (RUN_FILE, "audit.json", "rank2.1.pt.trace.json.gz"):
        (run_dir / name).write_text("an earlier one's")
    for file in run_dir.iterdir():
        os.utime(file, (written, written))


def trace_files(run_dir: Path) -> list[Path]:
    return sorted(run_dir.glob("*.pt.trace.json.gz"))


def read_trace(file: Path) -> dict[str, Any]:
    with gzip.open(file, "rt", encoding="utf-8") as stream:
        trace: dict[str, Any] = json.load(stream)
    return trace


def steps_in(trace: dict[str, Any]) -> dict[int, tuple[float, float]]:
    """The windows of `ProfilerStep#k`: k to begin and end in microseconds."""
    prefix = "ProfilerStep#"
    return {
        int(event["name"].removeprefix(prefix)): (event["ts"], event["ts"] + event["dur"])
        for event in trace["traceEvents"]
        if event.get("ph") == "X" and event["name"].startswith(prefix)
    }


def within(trace: dict[str, Any], name: str, window: tuple[float, float]) -> int:
    """How many complete events of that name a window holds whole."""
    return sum(
        event.get("name") == name and window[0] <= event["ts"] and event["ts"] + event["dur"] <= window[1]
        for event in trace["traceEvents"]
        if event.get("ph") == "X"
    )
