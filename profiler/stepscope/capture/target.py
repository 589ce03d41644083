"""What to run and how many of it: a script, a module, or the name of a bundled workload."""

from __future__ import annotations

import importlib.util
import sys
from importlib.metadata import entry_points
from pathlib import Path
from typing import NamedTuple

from stepscope.errors import InputError

WORKLOADS = "stepscope.workloads"
"""The group of entry points that name workloads; each is a module to run as with `python -m`."""

CPU_PROCESSES = 2


class Target(NamedTuple):
    """A script's path, or a module's name."""

    name: str
    module: bool


def find_target(name: str, *, module: bool) -> Target:
    """Find what `name` says. Raises InputError where it is nothing, listing the workloads there are."""
    if module:
        if not _module_exists(name):
            raise InputError(f"no module named {name!r} here or installed; -m takes what `python -m` takes")
        return Target(name, module=True)
    if Path(name).is_file() or Path(name, "__main__.py").is_file():
        return Target(name, module=False)
    workloads = {entry.name: entry.value for entry in entry_points(group=WORKLOADS)}
    if name in workloads:
        return Target(workloads[name].partition(":")[0], module=True)
    raise InputError(
        f"no script {name!r}, and no workload of that name; workloads: {', '.join(workloads) or 'none'}"
    )


def _module_exists(name: str) -> bool:
    """Whether the outermost package is found, as it will be in a rank: from the current folder first."""
    sys.path.insert(0, str(Path.cwd()))
    try:
        return importlib.util.find_spec(name.partition(".")[0]) is not None
    except ValueError:
        return False
    finally:
        del sys.path[0]
