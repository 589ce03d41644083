"""The run directory: made, or refused, before anything is launched."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path

from stepscope.errors import InputError

OWN_FILES = (
    "rank*.pt.trace.json.gz",
    "rank*.columns",
    "traces/rank*.pt.trace.json.gz",
    "rank*.meta.json",
    ".rank*.part",
    "run.json",
    "audit.json",
    "monitor.jsonl",
    "step[0-9]*/rank*.pt.trace.json.gz",
    "step[0-9]*/audit.json",
)
"""What a recording writes there; --force replaces these and touches nothing else."""

WITHOUT_A_STEP = ("rank*.meta.json", ".rank*.part", "run.json")
"""What a run leaves that failed before its first recorded step: nothing that anyone would miss."""

IN_PROGRESS = "rank*.meta.json"
"""What the ranks of another node may have written already, where nodes share the directory."""


def default_name(started: datetime) -> str:
    """The directory's name in the current one, where --out says none; `started` in UTC."""
    return f"stepscope-run-{started:%Y%m%dT%H%M%SZ}"


def make_run_dir(path: Path, started: datetime, *, force: bool, shared: bool) -> None:
    """Create `path`, or take it if it holds nothing, or no more than a run that recorded no step, or with `force`, which
    removes an earlier recording's files.

    With `shared` the ranks of other nodes may have begun to write into it: their files stay and are no reason to refuse.
    Raises InputError where it holds something or cannot be made.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
        present = set(path.iterdir())
    except OSError as error:
        raise InputError(
            f"cannot use {path} as run directory: {error.strerror}; name another with --out"
        ) from error
    if shared:
        present -= set(path.glob(IN_PROGRESS))
    if present <= {file for pattern in WITHOUT_A_STEP for file in path.glob(pattern)}:
        present = set()
    if present and not force:
        raise InputError(
            f"{path} is not empty; pass --force to replace a recording in it, or name another with --out"
        )
    remove_earlier(path, started.timestamp())


def remove_earlier(path: Path, before: float) -> None:
    """Take a recording's files away that were last written before that time of day, in s; several ranks may do it at once."""
    for pattern in OWN_FILES:
        for file in path.glob(pattern):
            with suppress(FileNotFoundError):
                if file.stat().st_mtime < before:
                    file.unlink()


@contextmanager
def trace_folder(run_dir: Path, *, apart: bool) -> Iterator[Path]:
    """Where the ranks of this node write their traces: `run_dir`; apart, a folder on the node's own storage that goes away.

    Traces that are still there at the end, since they could not be gathered, are moved into `run_dir`.
    """
    if not apart:
        yield run_dir
        return
    with tempfile.TemporaryDirectory(prefix="stepscope-traces-") as folder:
        try:
            yield Path(folder)
        finally:
            for trace in Path(folder).glob("rank*.pt.trace.json.gz"):
                shutil.move(trace, run_dir / trace.name)
