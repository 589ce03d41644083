"""Profiler and overlap auditor for distributed training steps.

The command line (`stepscope --help`) is the usual way in. From Python, `stepscope.record` records a training loop from inside and
`stepscope.monitor` watches one; `stepscope.trace.reader.read` reads a trace, `stepscope.audit.build.audit` judges what was read,
and `stepscope.audit.result` describes the answer.
"""

from __future__ import annotations

import importlib
import typing

if typing.TYPE_CHECKING:
    from stepscope.capture.monitor import monitor as monitor
    from stepscope.capture.record import record as record

__version__ = "0.1.0"


def __getattr__(name: str) -> object:
    """`stepscope.record` and `stepscope.monitor` need torch, so they are imported when they are asked for."""
    if name not in ("monitor", "record"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        return getattr(importlib.import_module(f"stepscope.capture.{name}"), name)
    except ModuleNotFoundError as error:
        raise ImportError(f"stepscope.{name} needs {error.name}: pip install 'stepscope[record]'") from error
