"""A rank of a recorded run: sets up the recorder, then runs the user's script as if it had been started itself."""

from __future__ import annotations

import os
import runpy
import signal
import sys
import types
import zipfile
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from stepscope.capture import config as capture_config
from stepscope.capture.config import CaptureConfig
from stepscope.capture.forks import off_in_forked_children
from stepscope.capture.on_import import after_import
from stepscope.capture.orphans import die_with_parent

if TYPE_CHECKING:
    from stepscope.capture.monitor import MonitoredRun
    from stepscope.capture.recorder import Recorder

_FROZEN_RUNPY = ("<frozen runpy>",)
"""The file name in the frames of the interpreter's built-in copy of runpy."""


class RecordedScript:
    """The recorder of a script: there is none before the script imports torch, which we must not do for it.

    Torch and the libraries below it read some of their settings when they are imported, and a script may set them before that.
    """

    def __init__(self, config: CaptureConfig) -> None:
        self._config = config
        self._recorder: Recorder | MonitoredRun | None = None
        self._is_off = False
        off_in_forked_children(self)
        after_import("torch", self.begin)

    def begin(self) -> None:
        """Install the recorder, if it is not there yet."""
        if self._is_off:
            return
        if self._recorder is None and self._config.monitor_every is not None:
            from stepscope.capture.monitor import MonitoredRun

            self._recorder = MonitoredRun(
                self._config.monitor_every, Path(self._config.run_dir), Path(self._config.trace_folder)
            )
        elif self._recorder is None:
            from stepscope.capture.recorder import Recorder

            self._recorder = Recorder(self._config)
            self._recorder.install()

    def turn_off(self) -> None:
        """This is a forked child, which may import torch on its own and leaves by way of our frames."""
        self._is_off = True

    def finish(self, error: str | None) -> None:
        """The script is over. One that ran well without torch is told that it made no step."""
        if error is None:
            self.begin()
        if self._recorder is not None:
            self._recorder.finish(error)


def main() -> None:
    """Record the script that the command line names."""
    die_with_parent(signal.SIGKILL)
    config = CaptureConfig.decoded(os.environ.pop(capture_config.VARIABLE))
    del sys.argv[0]
    recorded = RecordedScript(config)
    _finish_before_abrupt_end(recorded)
    error: str | None = None
    try:
        if config.module:
            _run_module(sys.argv[0])
        else:
            _run_script(sys.argv[0])
    except SystemExit as leaving:
        error = None if leaving.code in (None, 0) else f"SystemExit: {leaving.code}"
        raise
    except BaseException as failure:
        error = f"{type(failure).__name__}: {failure}"
        if isinstance(failure, KeyboardInterrupt):
            raise
        # printed here, for on the way up it would get our frames back
        failure.__traceback__ = _without_our_frames(failure.__traceback__)
        sys.excepthook(type(failure), failure, failure.__traceback__)
        sys.exit(1)
    finally:
        recorded.finish(error)


def _run_script(path: str) -> None:
    """As `python path` does; a folder or an archive with a __main__.py is left to runpy."""
    if Path(path).is_dir() or zipfile.is_zipfile(path):
        runpy.run_path(path, run_name="__main__")
        return
    if not sys.flags.safe_path:
        sys.path.insert(0, str(Path(path).resolve().parent))
    module = types.ModuleType("__main__")
    file = str(Path(path).absolute())
    loader = SourceFileLoader("__main__", file)
    module.__dict__.update(__file__=file, __loader__=loader, __builtins__=__builtins__, __cached__=None)
    sys.modules["__main__"] = module
    # Compiled here, for the loader would write bytecode beside the script, which Python does not do for __main__.
    exec(compile(Path(file).read_bytes(), file, "exec", dont_inherit=True), module.__dict__)


def _run_module(name: str) -> None:
    """As `python -m name` does."""
    if not sys.flags.safe_path:
        sys.path.insert(0, str(Path.cwd()))
    runpy.run_module(name, run_name="__main__", alter_sys=True)


def _finish_before_abrupt_end(recorded: RecordedScript) -> None:
    """os._exit runs neither `finally` nor `atexit`."""
    leave = os._exit

    def exit_after_finishing(status: int) -> None:
        recorded.finish(None if status == 0 else f"os._exit({status})")
        leave(status)

    os._exit = exit_after_finishing  # type: ignore[assignment]


def _without_our_frames(traceback: TracebackType | None) -> TracebackType | None:
    """The user's script is where a traceback begins."""
    while traceback is not None and traceback.tb_frame.f_code.co_filename in (
        __file__,
        runpy.__file__,
        *_FROZEN_RUNPY,
    ):
        traceback = traceback.tb_next
    return traceback
