"""Which files are meant by the paths on a command line: trace files, folders of them, or globs."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from glob import has_magic, iglob
from pathlib import Path

from stepscope.errors import InputError
from stepscope.trace.chunks import first_text
from stepscope.trace.files import TraceFile, located, reading_errors, reason
from stepscope.trace.packed import SUFFIX as COLUMNS_SUFFIX

_OWN_FILES = frozenset({"run.json", "audit.json", "fabric.json"})
"""What a run directory holds beside its traces."""

_TRACE_SUFFIXES = (".pt.trace.json", ".pt.trace.json.gz", COLUMNS_SUFFIX)
_NAMES = "*.pt.trace.json or *.pt.trace.json.gz"
_JSON_SUFFIXES = (".json", ".gz")

_LOOK_BYTES = 64 << 10
_WITH_TRACKS = re.compile(rb'\{"stepscopeTracks": \{"traces": (\d+)')
"""How the perfetto report begins: copies of traces that were audited already."""
_LOOKS_LIKE_TRACE = re.compile(rb'"(?:traceEvents|deviceProperties|distributedInfo|ph)"\s*:')


def find_traces(paths: Sequence[str]) -> list[TraceFile]:
    """The trace files that paths name, each once, in natural order (rank2 before rank10).

    A file is taken as it is, unless the perfetto report joined it from several. Of a folder, `*.pt.trace.json(.gz)` and
    whatever other JSON in it looks like a trace; its subfolders are left alone, since each may be a run of its own. A
    path that does not exist is tried as a glob, and of its matches likewise what looks like a trace.
    InputError where a path does not exist or no trace is found.
    """
    found: dict[TraceFile, TraceFile] = {}
    for path in paths:
        if len(paths) > 1 and located(path).name in _OWN_FILES:
            continue  # "run/*", spelled out by the shell
        for trace in _traces_at(path):
            found.setdefault(trace.resolve(), trace)
    if not found:
        raise InputError("no trace given; name a trace file, a run directory or a glob")
    return sorted(found.values(), key=_natural)


def find_local_traces(paths: Sequence[str]) -> list[Path]:
    """The same for other tools, which read files of this machine. InputError for one in a store."""
    found = find_traces(paths)
    remote = next((trace for trace in found if not isinstance(trace, Path)), None)
    if remote is not None:
        raise InputError(f"{remote}: other tools read files of this machine only; copy the traces here first")
    return [trace for trace in found if isinstance(trace, Path)]


def _traces_at(given: str) -> list[TraceFile]:
    if not given:
        raise InputError("an empty path; name a trace file, a run directory or a glob")
    path = located(given)
    try:
        if path.is_dir():
            return _in_folder(path)
        if path.exists():
            _refuse_joined(path)
            return [path]
        matches = _matches(path) if has_magic(given) else []
    except reading_errors() as error:
        raise InputError(f"{given}: cannot be read: {reason(error)}") from error
    if not matches:
        raise InputError(f"{given}: no such file or folder; name a trace file, a run directory or a glob")
    return _of_matches(given, matches)


def _matches(glob: TraceFile) -> Sequence[TraceFile]:
    if isinstance(glob, Path):
        return [Path(match) for match in iglob(str(glob), recursive=True)]  # noqa: PTH207 - absolute too
    return glob.matches()


def _of_matches(given: str, matches: Sequence[TraceFile]) -> list[TraceFile]:
    folders = [match for match in matches if match.is_dir()]
    traces = [match for match in matches if match not in folders and _is_trace(match)]
    traces += [trace for folder in folders for trace in _traces_of(folder)]
    if not traces:
        raise InputError(f"{given}: nothing that it matches is a trace ({_NAMES})")
    return traces


def _in_folder(folder: TraceFile) -> list[TraceFile]:
    traces = _traces_of(folder)
    if traces:
        return traces
    below = [child.name for child in _listing(folder) if child.is_dir() and _traces_of(child)]
    if below:
        names = ", ".join(below[:3]) + (", ..." if len(below) > 3 else "")
        raise InputError(f"{folder}: no traces in it, but in its folders ({names}); name one of them")
    raise InputError(f"{folder}: no traces in it ({_NAMES})")


def _traces_of(folder: TraceFile) -> list[TraceFile]:
    return [path for path in _listing(folder) if path.is_file() and _is_trace(path)]


def _listing(folder: TraceFile) -> Iterable[TraceFile]:
    try:
        return sorted(folder.iterdir(), key=_natural)
    except reading_errors() as error:
        raise InputError(f"{folder}: cannot be read: {reason(error)}") from error


def _is_trace(path: TraceFile) -> bool:
    if path.name.endswith(_TRACE_SUFFIXES):
        return True
    if not path.name.endswith(_JSON_SUFFIXES) or path.name in _OWN_FILES:
        return False
    text = first_text(path, _LOOK_BYTES)
    return _WITH_TRACKS.match(text) is None and _LOOKS_LIKE_TRACE.search(text) is not None


def _refuse_joined(path: TraceFile) -> None:
    """Several ranks in one file would be taken for one."""
    copied = _WITH_TRACKS.match(first_text(path, _LOOK_BYTES)) if path.is_file() else None
    if copied is not None and int(copied[1]) > 1:
        raise InputError(
            f"{path}: {copied[1].decode()} traces joined for Perfetto; audit those that it was made from"
        )


def _natural(path: TraceFile) -> list[tuple[int, str]]:
    """Sorts the numbers in a path by their value."""
    parts = re.split(r"(\d+)", str(path))
    return [(int(part), "") if part.isdigit() and part.isascii() else (-1, part) for part in parts]
