"""One recording with torch.profiler: begun, stepped and ended at moments that the caller chooses, then written to a file."""

from __future__ import annotations

import errno
import functools
import json
import os
import shutil
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import torch.autograd.profiler
import torch.distributed as dist
import torch.profiler
from zlib_ng import gzip_ng

from stepscope.capture.forks import leave_without_destructors, off_in_forked_children
from stepscope.capture.launch import KINETO_SILENT

TRACE_FILE = "rank{rank}.{nanoseconds}.pt.trace.json.gz"
"""A worker name, a time and the suffix that TensorBoard's torch-tb-profiler looks for; HTA takes the rank from inside."""

STEP_ANNOTATION = "ProfilerStep#{step}"
"""The name that torch.profiler gives its own steps, which readers look for."""

COMPRESSION = 3  # of zlib-ng: a rank that compresses keeps the others waiting


class _Kineto:
    """What the profiler leaves in the process for good, once it was prepared."""

    def turn_off(self) -> None:
        """Its ConfigLoader's destructor waits for a thread, which a forked child does not have, for ever."""
        leave_without_destructors()


_KINETO = _Kineto()


class Session:
    """A torch.profiler recording of all activities that the machine has.

    Call `prepare`, `start`, then `begin_step` and `end_step` around each step, `stop` and `export`.
    """

    def __init__(self, *, with_stack: bool) -> None:
        activities = torch.profiler.supported_activities()
        on_cuda = torch.profiler.ProfilerActivity.CUDA in activities and torch.version.cuda is not None
        if not on_cuda:
            os.environ.setdefault("KINETO_LOG_LEVEL", KINETO_SILENT)
        self._profile: torch.profiler.profile | None = torch.profiler.profile(
            activities=list(activities),
            record_shapes=True,
            with_stack=with_stack,
            experimental_config=(
                torch._C._profiler._ExperimentalConfig(enable_cuda_sync_events=True) if on_cuda else None
            ),
        )
        self._annotation: torch.autograd.profiler.record_function | None = None
        self.completed: list[int] = []
        self.unfinished: int | None = None

    @property
    def _active(self) -> torch.profiler.profile:
        assert self._profile is not None
        return self._profile

    def prepare(self) -> None:
        """Warm the profiler up; what it costs falls into the step before the first recorded one."""
        off_in_forked_children(_KINETO)
        self._active.prepare_trace()

    def start(self) -> None:
        """Begin to record. torch notes the process group in the trace now, if there is one: later it may be gone."""
        profile = self._active
        profile.start_trace()
        if not (dist.is_available() and dist.is_initialized()):
            profile.add_metadata_json("distributedInfo", json.dumps(_distributed_info()))

    def begin_step(self, step: int) -> None:
        """Open the window of training step `step`."""
        self.unfinished = step
        self._annotation = torch.autograd.profiler.record_function(STEP_ANNOTATION.format(step=step))
        self._annotation.__enter__()

    def end_step(self) -> None:
        """Close the window: the step is recorded whole."""
        assert self._annotation is not None
        assert self.unfinished is not None
        self._annotation.__exit__(None, None, None)
        self._annotation = None
        self.completed.append(self.unfinished)
        self.unfinished = None

    def stop(self) -> None:
        """End the recording, in the middle of a step too."""
        profile = self._active
        profile.add_metadata_json(
            "stepscope", json.dumps({"recorded_steps": self.completed, "unfinished_step": self.unfinished})
        )
        profile.stop_trace()

    def export(self, run_dir: Path, rank: int) -> str:
        """Write the trace into `run_dir` and return its file name; the file is there whole or not at all."""
        name = TRACE_FILE.format(rank=rank, nanoseconds=time.time_ns())
        plain = run_dir / f".rank{rank}.{os.getpid()}.json"
        packed = plain.with_suffix(".json.gz.part")
        try:
            self.write(plain)
            with plain.open("rb") as source, gzip_ng.open(packed, "wb", compresslevel=COMPRESSION) as target:
                if self.unfinished is None:
                    shutil.copyfileobj(source, target, 1 << 20)
                else:
                    target.writelines(self._without_unfinished(source))
            packed.replace(run_dir / name)
        finally:
            plain.unlink(missing_ok=True)
            packed.unlink(missing_ok=True)
        return name

    def write(self, plain: Path) -> None:
        """Write the trace to a file as torch does, uncompressed. OSError where that is not whole."""
        try:
            self._active.export_chrome_trace(str(plain))
            self._profile = None  # the events of a recording fill memory that the script may need
            whole = plain.exists() and _ends_well(plain)
            # on a full disk torch writes what fits, if anything, and says nothing
            if not whole and plain.parent.is_dir():
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        finally:
            plain.with_name(f"{plain.name}.tmp").unlink(missing_ok=True)  # Kineto's, where it could not go on

    def _without_unfinished(self, lines: Iterable[bytes]) -> Iterator[bytes]:
        """The open window under another name: to every reader a `ProfilerStep#` is a whole step."""
        name = STEP_ANNOTATION.format(step=self.unfinished)
        window, renamed = f'"name": "{name}"'.encode(), f'"name": "unfinished {name}"'.encode()
        return (line.replace(window, renamed) for line in lines)


class OtherProfilers:
    """Watches for profilers of the script itself: only one can be active in a process.

    `on_start` is called before another profiler gets ready, in time to end ours. Profilers made inside `ours()` are not watched.
    """

    def __init__(self, on_start: Callable[[], None]) -> None:
        self.seen = 0
        self._active: set[int] = set()
        self._on_start = on_start
        self._is_ours = False
        self._undo: list[Callable[[], None]] = []

    @property
    def active(self) -> bool:
        """Another profiler is recording or warming up."""
        return bool(self._active)

    def install(self) -> None:
        """Begin to watch; torch.profiler and torch.autograd.profiler both pass through these methods."""
        self._replace(torch.autograd.profiler.profile, "_prepare_trace", self._starting)
        self._replace(torch.autograd.profiler.profile, "__exit__", self._stopping)
        self._replace(torch.autograd.profiler.record_function, "__enter__", self._annotating)

    def remove(self) -> None:
        """Leave torch as it was found."""
        for undo in reversed(self._undo):
            undo()
        self._undo.clear()

    @contextmanager
    def ours(self) -> Iterator[None]:
        """What happens inside is done to our own profiler."""
        self._is_ours = True
        try:
            yield
        finally:
            self._is_ours = False

    def _replace(self, owner: Any, name: str, notice: Callable[[Any], None]) -> None:
        original = getattr(owner, name)

        @functools.wraps(original)
        def replacement(instance: Any, *args: Any) -> Any:
            if not self._is_ours:
                notice(instance)
            return original(instance, *args)

        setattr(owner, name, replacement)
        self._undo.append(lambda: setattr(owner, name, original))

    def _starting(self, profiler: Any) -> None:
        self._on_start()
        self.seen += 1
        self._active.add(id(profiler))

    def _stopping(self, profiler: Any) -> None:
        self._active.discard(id(profiler))

    def _annotating(self, annotation: Any) -> None:
        """A torch.profiler that waits or is done marks the script's steps all the same: they would cut ours in two."""
        if not self._active and annotation.name.startswith(STEP_ANNOTATION.format(step="")):
            annotation.name = f"the script's {annotation.name}"


def _ends_well(file: Path) -> bool:
    """Whether a JSON object has its last bracket."""
    with file.open("rb") as stream:
        stream.seek(max(0, file.stat().st_size - 64))
        return stream.read().rstrip().endswith(b"}")


def _distributed_info() -> dict[str, object]:
    """What torch would write had the script a process group, as far as the launcher told it."""
    return {
        "backend": "none",
        "rank": int(os.environ.get("RANK", "0")),
        "world_size": int(os.environ.get("WORLD_SIZE", "1")),
    }
