"""All ranks of a run, read for an audit: what is measured of each, and the traces of those that are replayed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from stepscope.errors import InputError
from stepscope.executors import LOCAL
from stepscope.executors.choose import executor
from stepscope.executors.executor import Executor
from stepscope.ranks.pairing import pair
from stepscope.ranks.representatives import MOST, representatives
from stepscope.trace.files import TraceFile
from stepscope.trace.recording import Recording

Progress = Callable[[int, int, str], None]
"""Called with what is done, of how much, and what comes next."""


@dataclass(slots=True)
class Ranks:
    """Recordings with the files that they were found in, and what is wrong with the files that are left out."""

    files: list[TraceFile] = field(default_factory=list)
    recordings: list[Recording] = field(default_factory=list)
    unreadable: list[tuple[TraceFile, InputError]] = field(default_factory=list)


def read_ranks(
    files: Sequence[TraceFile], engine: str = LOCAL, progress: Progress | None = None, most: int = MOST
) -> Ranks:
    """Read the files where the engine says. InputError where none of them is a trace, or the engine can't be had.

    Of more than `most` recordings the traces of their representatives alone are kept, read a second time for that: memory
    holds what is measured of a rank, whatever the size of its file.
    """
    with executor(engine, files) as reading:
        found = _read(reading, files, progress, whole=len(files) <= most)
        if len(files) > most:
            chosen = representatives(len(found.recordings), pair(found.recordings), most)
            again = _read(reading, [found.files[place] for place in chosen], None, whole=True)
            if again.unreadable:
                raise again.unreadable[0][1]
            for place, recording in zip(chosen, again.recordings, strict=True):
                found.recordings[place] = recording
    return found


def _read(reading: Executor, files: Sequence[TraceFile], progress: Progress | None, *, whole: bool) -> Ranks:
    found = Ranks()
    for file, one in zip(files, reading.recordings(files, whole=whole), strict=True):
        if progress is not None:
            progress(len(found.files) + len(found.unreadable), len(files), file.name)
        if isinstance(one, InputError):
            found.unreadable.append((file, one))
        else:
            found.files.append(file)
            found.recordings.append(one)
    if not found.recordings:
        raise found.unreadable[-1][1]
    if progress is not None:
        progress(len(files), len(files), "steps")
    return found
