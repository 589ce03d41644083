"""A process beside a monitored rank that reads its traces: at the lowest priority, away from the script's interpreter.

Jobs go to its standard input, one a line, answers come back on its standard output. It ends with that input, however the rank
ends. Nothing here imports torch: the process needs none.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

import msgspec

from stepscope.errors import InputError

LOWEST_PRIORITY = 19
_MODULE = "stepscope.cli.monitored"
"""What reads and audits is above `capture`, so it is named here and not imported."""


class HelperFailed(Exception):
    """A job could not be done; says why."""


class Figures(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What an audit of one step says, as much as a monitor tells."""

    verdict: str
    reason: str
    step_ms: float | None = None
    comm_ms: float | None = None
    """This and `exposed_ms`: the mean over ranks."""
    exposed_ms: float | None = None
    overlap: float | None = None
    """Share of gradient communication that backward compute hides."""
    overlap_wire: float | None = None
    """The same of transfer alone."""
    cost_share: float | None = None
    cause: str | None = None
    """The costliest of the findings."""
    cause_ms: float | None = None


class Job(msgspec.Struct, frozen=True):
    """Something to do: reduce a trace to its columns, audit a folder of columns, or pack a trace to be kept."""

    what: str
    source: str
    target: str


class Answer(msgspec.Struct, frozen=True):
    """How it went."""

    problem: str | None = None
    figures: Figures | None = None


def serve(
    tasks: Mapping[str, Callable[[Path, Path], Figures | None]], jobs: BinaryIO, answers: BinaryIO
) -> None:
    """Do jobs until there are no more. Only mistakes of the input are answered; others end the process."""
    for line in jobs:
        job = msgspec.json.decode(line, type=Job)
        try:
            answer = Answer(figures=tasks[job.what](Path(job.source), Path(job.target)))
        except (OSError, InputError) as error:
            answer = Answer(problem=str(error))
        answers.write(msgspec.json.encode(answer) + b"\n")
        answers.flush()


class Helper:
    """The process, started when it is first needed, and again where it has ended."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None

    def do(self, what: str, source: Path, target: Path) -> Figures | None:
        """Have one job done. Raises HelperFailed where it cannot be."""
        process = self._started()
        assert process.stdin is not None
        assert process.stdout is not None
        with suppress(OSError):  # a broken pipe: it is gone, and there is no answer
            process.stdin.write(msgspec.json.encode(Job(what, str(source), str(target))) + b"\n")
            process.stdin.flush()
        line = process.stdout.readline()
        if not line:
            self.end()
            raise HelperFailed("the process that reads traces ended")
        answer = msgspec.json.decode(line, type=Answer)
        if answer.problem is not None:
            raise HelperFailed(answer.problem)
        return answer.figures

    def end(self) -> None:
        """End the process, whatever it is doing."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            with suppress(OSError, ValueError):  # the thread that it ended under may have closed the pipes
                process.communicate()

    def _started(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            try:
                self._process = subprocess.Popen(
                    [sys.executable, "-P", "-m", _MODULE],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.DEVNULL,
                )
            except OSError as error:
                raise HelperFailed(f"no process can be started to read traces ({error.strerror})") from error
        return self._process
