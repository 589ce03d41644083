"""The script's own Python functions in a recording with stacks: which of them an event was called from.

torch's profiler writes a function as `train.py(42): step`: its file, shortened where that is on Python's path, the line on
which it begins, and its name (`with_stack=True`; torch/csrc/autograd/profiler_python.cpp). Python's own functions and torch's
are left out, and so is what has no file.
"""

from __future__ import annotations

import functools
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

PYTHON_FUNCTION = "python_function"
"""Their category in the file."""
_WITH_FILE = re.compile(r"(?P<file>[^<].*)\(\d+\): .+", re.DOTALL)
_INSTALLED = re.compile(r".*/(?:site-packages|dist-packages|lib/python3\.\d+)/")
_FOLDERS = frozenset(
    {"torch", "triton", "stepscope", "asyncio", "collections", "concurrent", "ctypes", "importlib"}
)
_FOLDERS |= {"json", "logging", "multiprocessing", "unittest"}
"""Of torch, of the recorder, and Python's own that a training step may run through."""


@dataclass(frozen=True, slots=True)
class Frames:
    """Calls of the script's functions, in the order of the file; columns of one length, times and names as in Events."""

    name: NDArray[np.int32] = field(default_factory=lambda: np.empty(0, np.int32))
    start: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
    end: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
    thread: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))

    def innermost(self, thread: int, start: int, end: int) -> int | None:
        """The name of the last called of the functions that were running on a thread all through [start, end)."""
        held = np.flatnonzero((self.thread == thread) & (self.start <= start) & (self.end >= end))
        return int(self.name[held[np.argmax(self.start[held])]]) if len(held) else None


def joined(parts: Sequence[Frames], earliest: int) -> Frames:
    """The calls of all parts of a file, their times counted from `earliest`."""
    return Frames(
        np.concatenate([np.empty(0, np.int32), *(part.name for part in parts)]),
        np.concatenate([np.empty(0, np.int64), *(part.start for part in parts)]) - earliest,
        np.concatenate([np.empty(0, np.int64), *(part.end for part in parts)]) - earliest,
        np.concatenate([np.empty(0, np.int64), *(part.thread for part in parts)]),
    )


@functools.lru_cache(maxsize=1 << 14)
def is_scripts(name: str) -> bool:
    """Whether a Python function is neither Python's, nor torch's, nor the recorder's."""
    match = _WITH_FILE.fullmatch(name)
    if match is None:
        return False
    folder, _, rest = _INSTALLED.sub("", match["file"]).partition("/")
    if not rest:
        return folder.removesuffix(".py") not in sys.stdlib_module_names
    return folder not in _FOLDERS and "stepscope/capture/" not in rest
