"""Launching: torchrun in a child process, its ranks recorded, no process left behind. Only the child needs torch."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

import msgspec

from stepscope.capture import config as capture_config
from stepscope.capture.config import CaptureConfig
from stepscope.capture.orphans import end_below
from stepscope.capture.place import Fabric, inside, variables
from stepscope.errors import InputError

POLL_SECONDS = 0.2
KINETO_SILENT = "6"
"""Above all of its levels, see ILoggerObserver.h in pytorch/kineto."""
AGENT = ("-P", "-m", "stepscope.capture.agent")
FORWARDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class _Variable(NamedTuple):
    name: str
    saved: str


CPP_LOG_LEVEL = _Variable("TORCH_CPP_LOG_LEVEL", "STEPSCOPE_SAVED_CPP_LOG_LEVEL")
"""torch's C++ log level, and where the user's own value waits while the launcher's process is kept quiet."""


class RankFailure(msgspec.Struct, frozen=True, array_like=True):
    """A rank that ended badly; a negative code is a signal's number."""

    rank: int
    exit_code: int


class LaunchStatus(msgspec.Struct, frozen=True, kw_only=True):
    """How a launch went."""

    kind: str
    """done, failed (ranks did), signal (one was forwarded), or error (nothing could be launched)."""
    failures: list[RankFailure] = []
    """The first to fail first; those that torchrun ended because of it come after."""
    message: str = ""
    """The signal's name, or the error."""


def launch(
    arguments: Mapping[str, Any],
    config: CaptureConfig,
    environment: Mapping[str, str],
    watch: Callable[[], None],
    fabric: Fabric | None = None,
    *,
    stdout: int | None = None,
    stderr: int | None = None,
) -> LaunchStatus:
    """Record the ranks of this node to their end: `start` with the worker that records."""
    told = {capture_config.VARIABLE: config.encoded()}
    return start(arguments, "worker.py", {**environment, **told}, watch, fabric, stdout=stdout, stderr=stderr)


def start(
    arguments: Mapping[str, Any],
    worker: str,
    environment: Mapping[str, str],
    watch: Callable[[], None],
    fabric: Fabric | None = None,
    *,
    stdout: int | None = None,
    stderr: int | None = None,
) -> LaunchStatus:
    """Run the ranks of this node to their end; `watch` is called now and then meanwhile, and ends them if it raises.

    `arguments` are torchrun's, parsed; its script is replaced by `worker`, a file of this folder. SIGINT, SIGTERM and SIGHUP go
    to torchrun, which ends its ranks; a second SIGINT kills them. With a fabric each rank runs at its place in it. `stdout` and
    `stderr` are the file descriptors that the ranks get as standard output and error, if not ours.
    """
    script = str(arguments["training_script"])
    ours = {
        **arguments,
        "module": False,
        "run_path": False,
        "training_script": str(Path(__file__).with_name(worker)),
        "training_script_args": [script, *arguments["training_script_args"]],
    }
    with tempfile.TemporaryDirectory(prefix="stepscope-") as scratch:
        job, status = Path(scratch, "job.json"), Path(scratch, "status.json")
        if {arguments["log_dir"], arguments["redirects"], arguments["tee"]} == {None, "0"}:
            ours["log_dir"] = scratch  # where nothing is logged torchrun leaves an empty folder behind
        try:
            job.write_bytes(msgspec.json.encode(ours))
        except OSError as error:
            raise InputError(
                f"cannot write into {scratch}: {error.strerror}; TMPDIR names another place"
            ) from error
        with inside(fabric):
            child = subprocess.Popen(
                [sys.executable, *AGENT, str(job), str(status), str(os.getpid())],
                env={**_quiet(environment), **variables(fabric)},
                stdout=stdout,
                stderr=stderr,
                process_group=0,  # a Ctrl-C reaches the ranks once, through us, not twice
            )
        with _forwarding(child) as forwarded, _ending(child):
            while child.poll() is None:
                time.sleep(POLL_SECONDS)
                watch()
        if forwarded:
            return LaunchStatus(kind="signal", message=forwarded[0].name)
        return told_by(status, child.returncode)


def told_by(status: Path, exit_code: int) -> LaunchStatus:
    """What the agent says of its end; where it was killed, or had no room for a file, its exit code says the rest."""
    with suppress(FileNotFoundError, msgspec.DecodeError):
        return msgspec.json.decode(status.read_bytes(), type=LaunchStatus)
    if exit_code == 0:
        return LaunchStatus(kind="done")
    return LaunchStatus(kind="error", message=f"it ended with exit code {exit_code}")


def _quiet(environment: Mapping[str, str]) -> dict[str, str]:
    """torchrun's own environment: its C++ log is off, and what the user had set waits for the ranks."""
    before = environment.get(CPP_LOG_LEVEL.name, "")
    return {**environment, CPP_LOG_LEVEL.saved: before, CPP_LOG_LEVEL.name: "FATAL"}


@contextmanager
def _ending(child: subprocess.Popen[bytes]) -> Iterator[None]:
    """Leaves no process behind, however the block ends."""
    try:
        yield
    finally:
        if child.poll() is None:
            _kill(child)
        child.wait()


def _kill(child: subprocess.Popen[bytes]) -> None:
    """End torchrun, its ranks, and whatever these have started."""
    end_below(child.pid, grace_seconds=0)
    child.kill()


@contextmanager
def _forwarding(child: subprocess.Popen[bytes]) -> Iterator[list[signal.Signals]]:
    """Yields the signals that have come so far."""
    forwarded: list[signal.Signals] = []

    def forward(number: int, _frame: FrameType | None) -> None:
        # torchrun, told once, ends its ranks and waits for them; whoever presses Ctrl-C again does not want to wait, but a
        # scheduler repeats SIGTERM as it comes, and kills when its time is over
        if not forwarded:
            child.send_signal(number)
        elif number == signal.SIGINT:
            _kill(child)
        forwarded.append(signal.Signals(number))

    before = {number: signal.signal(number, forward) for number in FORWARDED}
    try:
        yield forwarded
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def rank_environment(environment: Mapping[str, str], processes: int | None, gpus: int) -> dict[str, str]:
    """The environment to launch in: the user's, with what torchrun would set, and a quiet profiler.

    torchrun gives each of several ranks one OpenMP thread where the user said nothing, and prints a banner; here it prints none.
    Kineto writes two lines a recording to standard error; its errors are of interest only where there is a device to trace.
    """
    settings = {} if processes == 1 else {"OMP_NUM_THREADS": "1"}
    if not gpus:
        settings["KINETO_LOG_LEVEL"] = KINETO_SILENT
    return {**settings, **environment}
