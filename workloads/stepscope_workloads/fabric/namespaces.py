"""Network namespaces without names: each lives as long as this process holds it open or a process runs in it.

There is nothing to remove and nothing to leave behind: the kernel takes a namespace away with its last user, however that ended.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

CLONE_NEWNET = 0x40000000
_CURRENT = "/proc/thread-self/ns/net"


class Namespace:
    """A network namespace that an open file keeps."""

    def __init__(self) -> None:
        """Make an empty one. Raises OSError where the kernel or the user's rights do not allow it."""
        with _returning():
            _call("unshare", CLONE_NEWNET)
            self._file = os.open(_CURRENT, os.O_RDONLY | os.O_CLOEXEC)

    @property
    def path(self) -> str:
        """Where other processes of this user find it, while this process lives."""
        return f"/proc/{os.getpid()}/fd/{self._file}"

    def run(self, command: Sequence[str], lines: Sequence[str]) -> None:
        """Run a program of iproute2 in it with a batch of lines. Raises OSError with what it complained about."""
        with _returning():
            _call("setns", self._file, CLONE_NEWNET)
            done = subprocess.run(
                command, input="\n".join(lines), text=True, capture_output=True, check=False
            )
        if done.returncode:
            raise OSError(f"{' '.join(command)}: {(done.stderr or done.stdout).strip()}")

    def write(self, settings: dict[str, str]) -> None:
        """Set sysctls of its network, by their path below /proc/sys/net."""
        with _returning():
            _call("setns", self._file, CLONE_NEWNET)
            for name, value in settings.items():
                with open(f"/proc/sys/net/{name}", "w", encoding="ascii") as file:  # noqa: PTH123
                    file.write(value)

    def close(self) -> None:
        """Let go of it."""
        os.close(self._file)


@contextmanager
def _returning() -> Iterator[None]:
    """The calling thread is where it was, whatever happens in between."""
    before = os.open(_CURRENT, os.O_RDONLY | os.O_CLOEXEC)
    try:
        yield
    finally:
        _call("setns", before, CLONE_NEWNET)
        os.close(before)


def _call(name: str, *arguments: int) -> None:
    """A function of the C library; os.setns and os.unshare came with Python 3.12."""
    library = ctypes.CDLL(None, use_errno=True)
    if getattr(library, name)(*arguments):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), name)
