"""Two hosts on one machine: a network namespace each, a host name of its own, and a hosts file that knows both."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from stepscope_workloads.fabric import emulate

NAMES = ("node0", "node1")
_ENTER = 'hostname "$0" && mount --bind "$1" /etc/hosts && shift && exec "$@"'
"""In a UTS and a mount namespace, which end with the process: nothing of the machine's own changes."""


@dataclass(frozen=True)
class Host:
    """One of them."""

    name: str
    namespace: str
    hosts_file: Path

    def start(self, *arguments: str | Path, cwd: Path) -> subprocess.Popen[str]:
        """`stepscope` with these arguments, there."""
        inside = ["nsenter", f"--net={self.namespace}", "unshare", "--uts", "--mount"]
        enter = ["sh", "-c", _ENTER, self.name, self.hosts_file]
        command = [*inside, *enter, sys.executable, "-m", "stepscope", *arguments]
        return subprocess.Popen(
            [str(part) for part in command],
            cwd=cwd,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )


@contextmanager
def two_hosts(folder: Path) -> Iterator[Sequence[Host]]:
    """Hosts that reach one another by name over 1 Gbit/s, and nothing else."""
    with emulate("1gbit", 1, len(NAMES)) as fabric:
        file = folder / "hosts"
        lines = [f"10.200.1.{number} {name}\n" for number, name in enumerate(NAMES, start=1)]
        file.write_text("127.0.0.1 localhost\n" + "".join(lines), "utf-8")
        yield [Host(name, place.namespace, file) for name, place in zip(NAMES, fabric.ranks, strict=True)]
