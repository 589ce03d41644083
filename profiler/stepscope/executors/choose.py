"""Which executor reads: the one that was named, or what this machine and these files call for."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

from stepscope.errors import InputError
from stepscope.executors import LOCAL
from stepscope.executors.executor import Executor, Here
from stepscope.executors.on_dask import Cluster
from stepscope.executors.pool import Pool
from stepscope.trace.chunks import text_bytes
from stepscope.trace.files import RemoteFile, TraceFile, reading_errors

DASK = "dask://"
_DASK_PORT = 8786

_BYTES_PER_S, _S_PER_FILE = 50e6, 0.02
"""About how fast one process reads."""
_WORTH_S = 1.0
"""So much reading to a worker pays for its start, a third of a second."""
_WORKER_BYTES, _BYTES_PER_TEXT = 100 << 20, 0.75
"""About what a worker needs for itself, and for each byte of a trace's text."""
_SHARE_OF_FREE = 0.7


@contextmanager
def executor(engine: str, files: Sequence[TraceFile]) -> Iterator[Executor]:
    """The executor that an engine's name means: "local", "local:N" or "dask://host:port". InputError for any other."""
    with closing(_executor(engine, files)) as found:
        yield found


def _executor(engine: str, files: Sequence[TraceFile]) -> Executor:
    if engine.startswith(DASK):
        return Cluster(_address(engine))
    name, _, number = engine.partition(":")
    if name != LOCAL or (number and not (number.isdecimal() and int(number) > 0)) or engine.endswith(":"):
        raise InputError(
            f"no engine {engine!r}; there are {LOCAL}, {LOCAL}:N (1 process or more) and {DASK}host:port"
            f"{_meant(engine)}"
        )
    workers = min(int(number), len(files)) if number else workers_for(files)
    if workers < 2 or any(isinstance(file, RemoteFile) and file.in_this_process for file in files):
        return Here()
    return Pool(workers)


def _address(engine: str) -> str:
    address = engine.removeprefix(DASK)
    host, _, port = address.rpartition(":")
    if not host or "/" in address or not port.isdecimal() or not 0 < int(port) < 1 << 16:
        raise InputError(
            f"no address in {engine!r}; name a scheduler as {DASK}host:port (dask's own port is {_DASK_PORT})"
            f"{_meant(engine)}"
        )
    return address


def _meant(engine: str) -> str:
    """What to write for the address that a scheduler says of itself, such as tcp://10.0.0.1:8786."""
    scheme, _, address = engine.removeprefix(DASK).rpartition("://")
    return f"; did you mean {DASK}{address}?" if scheme and address else ""


def workers_for(files: Sequence[TraceFile]) -> int:
    """As many processes as have enough to do, as there are cores for, and as fit into the memory that is free."""
    if not all(file.is_file() for file in files):  # opening a pipe would wait for a writer
        return 1
    try:
        sizes = [text_bytes(file) for file in files]
    except reading_errors():
        return 1
    seconds = sum(sizes) / _BYTES_PER_S + len(sizes) * _S_PER_FILE
    each = _WORKER_BYTES + _BYTES_PER_TEXT * max(sizes)
    free = free_bytes()
    fit = len(sizes) if free is None else int(_SHARE_OF_FREE * free / each)
    return max(1, min(cores(), len(sizes), fit, int(seconds / _WORTH_S)))


def cores() -> int:
    """Processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def free_bytes() -> int | None:
    """Memory that is free for this process, of the machine and of its control group; None where nothing tells."""
    found = [free for free in (_free_of_machine(), _free_of_group()) if free is not None]
    return min(found, default=None)


def _free_of_machine() -> int | None:
    text = _text(Path("/proc/meminfo"))
    line = next((line for line in text.splitlines() if line.startswith("MemAvailable:")), "")
    return int(line.split()[1]) << 10 if line else None


def _free_of_group(root: Path = Path("/sys/fs/cgroup")) -> int | None:
    limit, used = (_text(root / name).strip() for name in ("memory.max", "memory.current"))
    return max(0, int(limit) - int(used)) if limit.isdecimal() and used.isdecimal() else None


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
