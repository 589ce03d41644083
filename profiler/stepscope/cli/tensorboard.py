"""TensorBoard with PyTorch's profiler plugin on a run directory, served from this process until it is interrupted."""

from __future__ import annotations

import importlib.util
import multiprocessing
import os
import threading
import webbrowser
from pathlib import Path
from typing import NoReturn

from stepscope.errors import InputError
from stepscope.trace.files import reason
from stepscope.trace.packed import SUFFIX, refuse_packed

PACKAGES = ("tensorboard", "torch_tb_profiler")
TRACES = ("*.pt.trace.json", "*.pt.trace.json.gz")
"""The only names that the plugin looks at."""


def serve(run: Path, port: int | None, *, browser: bool) -> None:
    """Serve until Ctrl+C. Raises InputError where a package, a trace or the port is missing."""
    missing = [name for name in PACKAGES if importlib.util.find_spec(name) is None]
    if missing:
        raise InputError(f"--tensorboard needs {' and '.join(missing)}: pip install 'stepscope[tensorboard]'")
    try:
        files = sorted(run.iterdir())
    except OSError as error:
        raise InputError(f"{run}: cannot be read: {reason(error)}; name a run directory") from error
    if not any(file.match(pattern) for file in files for pattern in TRACES):
        for gathered in (file for file in files if file.suffix == SUFFIX):
            refuse_packed(gathered)
        raise InputError(
            f"{run}: no trace in it that TensorBoard's profiler plugin reads ({' or '.join(TRACES)})"
        )
    page = f"{_launch(run, port)}#pytorch_profiler"
    try:
        print(f"TensorBoard shows {run} at {page} once it has read the traces; Ctrl+C ends it.", flush=True)
        if browser:
            webbrowser.open(page)
        threading.Event().wait()
    except (KeyboardInterrupt, SystemExit):
        _end_now()


def _end_now() -> NoReturn:
    """End although the plugin may still be reading: its threads and processes would be waited for."""
    for child in multiprocessing.active_children():
        child.kill()
    print(flush=True)
    os._exit(0)


def _launch(run: Path, port: int | None) -> str:
    """Start the server in a thread; its address."""
    from tensorboard import program

    board = program.TensorBoard()
    # The fast loader is a process of its own, and there is nothing in a run that it would load.
    options = ["--logdir", str(run), "--load_fast", "false"]
    board.configure([None, *options, *([] if port is None else ["--port", str(port)])])
    try:
        return str(board.launch())
    except program.TensorBoardServerException as error:
        raise InputError(f"TensorBoard did not start: {error.msg}; name another port with --port") from error
