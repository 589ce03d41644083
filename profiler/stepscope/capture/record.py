"""Recording from inside a script, for those who prefer an edit: `with stepscope.record("DIR"):` around the training loop."""

from __future__ import annotations

import os
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from stepscope.capture.config import DEFAULT_STEPS, DEFAULT_WARMUP, CaptureConfig
from stepscope.capture.merge import Command, merge
from stepscope.capture.metadata import RUN_FILE
from stepscope.capture.notice import warn
from stepscope.capture.recorder import Recorder
from stepscope.capture.rundir import remove_earlier
from stepscope.capture.settings import process_started
from stepscope.errors import InputError


class Recording:
    """What `record` gives: nothing has to be done with it."""

    def __init__(self, recorder: Recorder | None) -> None:
        self._recorder = recorder

    def step(self) -> None:
        """Say that a training step has ended; from the first call on, optimizers are not watched any more."""
        if self._recorder is not None:
            self._recorder.stepped_by_hand()


@contextmanager
def record(
    run_dir: str | os.PathLike[str],
    *,
    warmup: int = DEFAULT_WARMUP,
    steps: int = DEFAULT_STEPS,
    with_stack: bool = False,
    enabled: bool = True,
) -> Iterator[Recording]:
    """Record `steps` training steps of the loop inside, after `warmup` unrecorded ones, into `run_dir`.

    Every rank calls it, under any launcher: which rank it is, the process group says, or RANK and WORLD_SIZE. A training step is
    an optimizer step unless `step` is called on what it gives. With `enabled=False`, and inside `stepscope run` (which records
    already), it does nothing but take the steps. The lowest rank writes run.json, once its block and the others' have ended.

    An earlier recording in `run_dir` is replaced, whole or not: what was written before this process began is taken away first.

    Raises InputError where `warmup` or `steps` is below 1 or `run_dir` cannot be made. `stepscope audit run_dir` audits the rest.
    """
    running = Recorder.running
    if running is not None or not enabled:
        yield Recording(running)
        return
    if warmup < 1 or steps < 1:
        raise InputError(f"cannot record {steps} steps after {warmup}: both must be at least 1")
    path = _made(Path(run_dir))
    alone = uuid.uuid4().hex  # nobody launched the ranks together
    config = CaptureConfig(
        run_dir=str(path.resolve()), warmup=warmup, steps=steps, with_stack=with_stack, launch_id=alone
    )
    command = Command(
        arguments=list(sys.orig_argv),
        script=sys.argv[0],
        started=datetime.now(UTC),
        config=config,
        known_environment=frozenset(os.environ),
    )
    recorder = Recorder(config)
    recorder.install()
    error: str | None = None
    try:
        yield Recording(recorder)
    except BaseException as failure:
        error = f"{type(failure).__name__}: {failure}"
        raise
    finally:
        recorder.finish(error)
        if not recorder.is_inherited:
            _write_run(path, command)


def _write_run(path: Path, command: Command) -> None:
    try:
        merge(path, command, {})
    except OSError as full:
        warn(f"cannot write {path / RUN_FILE}: {full.strerror}")


def _made(path: Path) -> Path:
    try:
        path.mkdir(parents=True, exist_ok=True)
        # ranks meet before they train, so what others of this launch have kept by now is younger than each of them
        if (began := process_started()) is not None:
            remove_earlier(path, began)
    except OSError as error:
        raise InputError(f"cannot use {path} as run directory: {error.strerror}; name another") from error
    return path
