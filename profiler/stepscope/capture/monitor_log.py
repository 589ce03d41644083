"""Where a monitor tells what it found: a line on standard error, monitor.jsonl, TensorBoard, Weights & Biases."""

from __future__ import annotations

import errno
import importlib.util
import os
import shutil
import sys
from pathlib import Path
from typing import Any, Protocol

import msgspec

from stepscope.capture.config import MONITOR_FILE
from stepscope.capture.helper import Figures
from stepscope.capture.monitor_cost import Cost
from stepscope.capture.notice import warn

_LEAST_FREE = 1 << 20
"""Bytes; a training's scalars are less."""


class Writer(Protocol):
    """A SummaryWriter, or whatever takes scalars as one does."""

    def add_scalar(self, tag: str, scalar_value: float, global_step: int) -> None:
        """Note one value of a step."""


class Entry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A line of monitor.jsonl: a recorded step, what it showed, and what recording it cost."""

    step: int
    figures: Figures | None = None
    problem: str | None = None
    """Why there are none."""
    kept: str | None = None
    """The folder of the traces, where the verdict was another one than before."""
    ranks: int
    moved_bytes: int = 0
    """What all ranks sent to rank 0."""
    trace_bytes: int = 0
    """The size of rank 0's own trace."""
    cost_ms: float | None = None
    """What monitoring cost since the last recorded step, and below that as a share of the time."""
    monitor_cost_share: float | None = None
    cost_share: float | None = None
    """The same, by its first name; `figures.cost_share` is another: what communication costs of the step."""
    quiet_step_ms: float | None = None


class MonitorLog:
    """Tells entries; where one way fails, that is said once and the others go on."""

    def __init__(self, out: Path, writer: Writer | None) -> None:
        self._out, self._writer = out, writer
        self._opened = writer is not None or importlib.util.find_spec("tensorboard") is None
        self._failed: set[str] = set()

    def open(self) -> None:
        """What takes time: find and start a writer for TensorBoard, if the script gave none. Calling it again changes nothing."""
        if self._opened:
            return
        self._opened = True
        try:
            from torch.utils.tensorboard import SummaryWriter

            _refuse_full(self._out)  # its thread would end with a traceback
            self._writer = SummaryWriter(str(self._out))
        except OSError as error:
            self._once(f"nothing is written for TensorBoard: {error.strerror}")
        except ImportError as error:
            self._once(f"nothing is written for TensorBoard: {error}")

    def tell(self, entry: Entry) -> None:
        """All that there is to tell of one recorded step."""
        warn(line_of(entry))
        self._append(msgspec.json.encode(entry) + b"\n")
        if entry.figures is not None:
            self._scalars(entry.step, scalars_of(entry))

    def _append(self, line: bytes) -> None:
        try:
            self._out.mkdir(parents=True, exist_ok=True)
            with (self._out / MONITOR_FILE).open("ab") as file:
                file.write(line)
        except OSError as error:
            self._once(f"cannot write {self._out / MONITOR_FILE}: {error.strerror}")

    def _scalars(self, step: int, scalars: dict[str, float]) -> None:
        if self._writer is not None:
            try:
                for name, value in scalars.items():
                    self._writer.add_scalar(name, value, step)
            except OSError as error:
                self._once(f"cannot write for TensorBoard: {error.strerror}")
        run = getattr(sys.modules.get("wandb"), "run", None)
        if run is not None:
            _log_to(run, step, scalars)

    def _once(self, line: str) -> None:
        if line not in self._failed:
            self._failed.add(line)
            warn(line)


def _refuse_full(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    if shutil.disk_usage(folder).free < _LEAST_FREE:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def _log_to(run: Any, step: int, scalars: dict[str, float]) -> None:
    """Without a commit: the values go with the script's next ones, and its own step count stays as it is."""
    run.log({**scalars, "stepscope/step": step}, commit=False)


def scalars_of(entry: Entry) -> dict[str, float]:
    """The figures by the names under which they are plotted."""
    figures = entry.figures or Figures(verdict="", reason="")
    found = {
        "overlap": figures.overlap,
        "overlap_wire": figures.overlap_wire,
        "step_ms": figures.step_ms,
        "comm_ms": figures.comm_ms,
        "exposed_ms": figures.exposed_ms,
        "cost_share": figures.cost_share,
        "monitor_cost_share": entry.monitor_cost_share,
    }
    return {f"stepscope/{name}": value for name, value in found.items() if value is not None}


def line_of(entry: Entry) -> str:
    """For people: `step 400: overlap 83 % (wire 85 %), exposed 12.3 ms of 140 ms, comm-sensitive; link-bound`."""
    figures = entry.figures
    if figures is None:
        return f"step {entry.step}: not audited: {entry.problem}"
    parts = [_overlap(figures), _exposed(figures), figures.verdict]
    text = ", ".join(part for part in parts if part)
    text += f"; {figures.cause}" if figures.cause else ""
    return f"step {entry.step}: {text}" + (f"; traces kept in {entry.kept}" if entry.kept else "")


def _overlap(figures: Figures) -> str:
    if figures.overlap is None:
        return ""
    wire = "" if figures.overlap_wire is None else f" (wire {figures.overlap_wire:.0%})"
    return f"overlap {figures.overlap:.0%}{wire}".replace("%", " %")


def _exposed(figures: Figures) -> str:
    if figures.exposed_ms is None or figures.step_ms is None:
        return ""
    return f"exposed {figures.exposed_ms:.1f} ms of {figures.step_ms:.0f} ms"


def cost_of(cost: Cost | None) -> dict[str, float]:
    """A cost as an entry's fields."""
    if cost is None:
        return {}
    return {
        "cost_ms": cost.cost_ms,
        "monitor_cost_share": cost.share,
        "cost_share": cost.share,
        "quiet_step_ms": cost.quiet_step_ms,
    }
