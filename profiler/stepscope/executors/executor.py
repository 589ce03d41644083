"""The interface, and its simplest form."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

from stepscope.errors import InputError
from stepscope.executors.work import recording_of
from stepscope.trace.files import TraceFile
from stepscope.trace.recording import Recording


class Executor(Protocol):
    """Reads trace files, wherever. To be closed."""

    def recordings(self, files: Sequence[TraceFile], *, whole: bool) -> Iterator[Recording | InputError]:
        """Each file's recording in the order of the files, as soon as it is there; the error of one that is no trace.

        whole: with its trace, for ranks that are replayed. InputError is raised for what concerns all files.
        """
        ...

    def close(self) -> None:
        """End what was started."""
        ...


class Here:
    """Reads in this process, one file after the other; a second process helps with a large one."""

    def recordings(self, files: Sequence[TraceFile], *, whole: bool) -> Iterator[Recording | InputError]:
        """See `Executor`."""
        for file in files:
            try:
                yield recording_of(file, whole=whole)
            except InputError as error:
                yield error

    def close(self) -> None:
        """There is nothing to end."""
