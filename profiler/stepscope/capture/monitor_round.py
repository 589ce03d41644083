"""One recorded step of a monitor, from the ranks' traces to the figures: in a thread, beside the steps that follow."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from stepscope.capture.helper import Figures, Helper, HelperFailed
from stepscope.capture.meeting import Absent, Meeting
from stepscope.trace.packed import MAGIC, SUFFIX

KEEP, DROP = "keep", "drop"
AUDIT_FILE = "audit.json"


@dataclass(frozen=True)
class Place:
    """Where a rank works and keeps; the same for all rounds."""

    rank: int
    size: int
    scratch: Path
    out: Path

    def kept(self, step: int) -> Path:
        """The folder of a step whose traces are kept."""
        return self.out / f"step{step:06d}"


@dataclass
class Outcome:
    """What became of a recorded step, on this rank."""

    step: int
    figures: Figures | None = None
    """On rank 0, where the audit went well."""
    kept: bool = False
    moved_bytes: int = 0
    """On rank 0: of all ranks' columns."""
    trace_bytes: int = 0
    """Of this rank's trace, as torch writes it."""
    problem: str | None = None
    """Why there are no figures."""
    apart: bool = False
    """The ranks did not meet: there is no sense in another round."""


class Round(threading.Thread):
    """Reduces this rank's trace, meets the other ranks, has rank 0 audit, and keeps or removes the trace.

    trace: a file, or why there is none. previous: the verdict of the round before, on rank 0; another one keeps the traces, if
    there is room. at_last: what else rank 0 does before the figures are told.
    """

    def __init__(
        self,
        meeting: Meeting,
        helper: Helper,
        place: Place,
        step: int,
        trace: Path | str,
        previous: str | None,
        *,
        room: bool,
        at_last: Callable[[], None],
    ) -> None:
        super().__init__(name=f"stepscope-step-{step}", daemon=True)
        self._meeting, self._helper, self._place = meeting, helper, place
        self._trace, self._previous, self._room = trace, previous, room
        self._at_last = at_last
        self._folder = place.scratch / f"step{step}"
        self._missing: list[str] = []
        self.outcome = Outcome(step)

    def run(self) -> None:
        """All of it; what goes wrong is in the outcome."""
        outcome = self.outcome
        try:
            self._go()
        except Absent as reason:
            outcome.problem, outcome.apart = str(reason), True
        except (HelperFailed, OSError) as reason:
            outcome.problem = str(reason)
        finally:
            shutil.rmtree(self._folder, ignore_errors=True)
            if isinstance(self._trace, Path):
                self._trace.unlink(missing_ok=True)
        if self._place.rank == 0:
            self._at_last()

    def _go(self) -> None:
        self._folder.mkdir()
        self._meeting.gather(self._reduced(), self._collect)
        word = self._meeting.announce(self._audited() if self._place.rank == 0 else DROP)
        if word == KEEP:
            self._keep()
        self._meeting.close()

    def _reduced(self) -> bytes:
        """This rank's columns, or why it has none."""
        if isinstance(self._trace, str):
            return self._trace.encode()
        try:
            self.outcome.trace_bytes = self._trace.stat().st_size
            columns = self._folder / f"mine{SUFFIX}"
            self._helper.do("reduce", self._trace, columns)
            content = columns.read_bytes()
            columns.unlink()
        except (HelperFailed, OSError) as reason:
            return str(reason).encode()
        return content

    def _collect(self, rank: int, content: bytes) -> None:
        if content.startswith(MAGIC):
            (self._folder / f"rank{rank}{SUFFIX}").write_bytes(content)
            self.outcome.moved_bytes += len(content)
        else:
            self._missing.append(f"rank {rank}: {content.decode(errors='replace')}")

    def _audited(self) -> str:
        """Rank 0's word to all; whatever goes wrong here, they must hear one."""
        outcome = self.outcome
        if self._missing:
            outcome.problem = self._missing[0]
            return DROP
        try:
            outcome.figures = self._helper.do("audit", self._folder, self._folder / AUDIT_FILE)
        except HelperFailed as reason:
            outcome.problem = str(reason)
        if outcome.figures is None or outcome.figures.verdict == self._previous or not self._room:
            return DROP
        return KEEP

    def _keep(self) -> None:
        folder = self._place.kept(self.outcome.step)
        assert isinstance(self._trace, Path)
        self._helper.do("keep", self._trace, folder / f"rank{self._place.rank}.pt.trace.json.gz")
        if self._place.rank == 0:
            shutil.copy(self._folder / AUDIT_FILE, folder)
        self.outcome.kept = True
