"""Which files are meant by the paths on a command line: trace files, folders of them, or globs."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from glob import has_magic, iglob
from pathlib import Path

from stepscope.errors import InputError
from stepscope.trace.chunks import first_text
from stepscope.trace.files import TraceFile, located, reading_errors, reason
from stepscope.trace.packed import SUFFIX as COLUMNS_SUFFIX
from stepscope.trace.packed import refuse_packed

_OWN_FILES = frozenset({"run.json", "audit.json", "fabric.json"})
"""What a run directory holds beside its traces."""

_TRACE_SUFFIXES = (".pt.trace.json", ".pt.trace.json.gz", COLUMNS_SUFFIX)
_NAMES = f"*.pt.trace.json, *.pt.trace.json.gz or *{COLUMNS_SUFFIX}"
_JSON_SUFFIXES = (".json", ".gz")

_LOOK_BYTES = 64 << 10
_WITH_TRACKS = re.compile(rb'\{"stepscopeTracks": \{"traces": (\d+)')
"""How the perfetto report begins: copies of traces that were audited already."""
_LOOKS_LIKE_TRACE = re.compile(rb'"(?:traceEvents|deviceProperties|distributedInfo|ph)"\s*:')


@dataclass(frozen=True, slots=True)
class Found:
    """What paths name: traces, and beside them what is named like one, or like other JSON, and can't be read as a file."""

    traces: list[TraceFile] = field(default_factory=list)
    left_out: list[tuple[TraceFile, InputError]] = field(default_factory=list)


def look_for_traces(paths: Sequence[str]) -> Found:
    """The trace files that paths name, each once, in natural order (rank2 before rank10).

    A file is taken as it is, unless the perfetto report joined it from several. Of a folder, `*.pt.trace.json(.gz)`,
    `*.columns` and whatever other JSON in it looks like a trace; its subfolders are left alone, since each may be a run of its
    own. A path that does not exist is tried as a glob, and of its matches likewise what looks like a trace.
    InputError where a path does not exist or no trace is found.
    """
    traces: dict[TraceFile, TraceFile] = {}
    left_out: dict[TraceFile, InputError] = {}
    for path in paths:
        if len(paths) > 1 and located(path).name in _OWN_FILES:
            continue  # "run/*", spelled out by the shell
        found = _found_at(path)
        for trace in found.traces:
            traces.setdefault(trace.resolve(), trace)
        left_out |= dict(found.left_out)
    if not traces:
        raise InputError("no trace given; name a trace file, a run directory or a glob")
    return Found(
        sorted(traces.values(), key=_natural), sorted(left_out.items(), key=lambda one: _natural(one[0]))
    )


def find_traces(paths: Sequence[str]) -> list[TraceFile]:
    """The same for whoever needs all of them: InputError, too, for what would be left out."""
    found = look_for_traces(paths)
    for _, why in found.left_out:
        raise why
    return found.traces


def find_local_traces(paths: Sequence[str]) -> list[Path]:
    """The same for other tools, which read JSON on this machine. InputError for a file in a store, and for gathered columns."""
    found = find_traces(paths)
    remote = next((trace for trace in found if not isinstance(trace, Path)), None)
    if remote is not None:
        raise InputError(f"{remote}: other tools read files of this machine only; copy the traces here first")
    for trace in found:
        refuse_packed(trace)
    return [trace for trace in found if isinstance(trace, Path)]


def of_the_run(
    traces: Sequence[TraceFile], run: Mapping[str, object] | None
) -> tuple[list[TraceFile], list[TraceFile]]:
    """The traces that a run.json names, and the others: an earlier recording's, or those of a process that was no rank.

    All are the run's where it names none that is here, as after they were renamed.
    """
    ranks = (run or {}).get("ranks")
    described = [rank for rank in ranks if isinstance(rank, dict)] if isinstance(ranks, list) else []
    named = {str(rank.get("trace")).removesuffix(".gz") for rank in described}
    ours = [trace for trace in traces if trace.name.removesuffix(".gz") in named]
    return (ours, [trace for trace in traces if trace not in ours]) if ours else (list(traces), [])


def _found_at(given: str) -> Found:
    if not given:
        raise InputError("an empty path; name a trace file, a run directory or a glob")
    path = located(given)
    try:
        if path.is_dir():
            return _in_folder(path)
        if path.exists():
            _refuse_joined(path)
            return Found([path])
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


def _of_matches(given: str, matches: Sequence[TraceFile]) -> Found:
    found = Found()
    for match in matches:
        within = _traces_of(match) if _is_folder(match) else Found()
        _sort_in(match, found) if not within.traces else found.traces.extend(within.traces)
        found.left_out.extend(within.left_out)
    if not found.traces:
        raise InputError(f"{given}: nothing that it matches is a trace ({_NAMES}){_because(found)}")
    return found


def _in_folder(folder: TraceFile) -> Found:
    found = _traces_of(folder)
    if found.traces:
        return found
    below = [child.name for child in _listing(folder) if _has_traces(child)]
    if below:
        names = ", ".join(below[:3]) + (", ..." if len(below) > 3 else "")
        raise InputError(f"{folder}: no traces in it, but in its folders ({names}); name one of them")
    raise InputError(f"{folder}: no traces in it ({_NAMES}){_because(found)}")


def _because(found: Found) -> str:
    """The first of what was left out, at the end of an error."""
    return f": {found.left_out[0][1]}" if found.left_out else ""


def _traces_of(folder: TraceFile) -> Found:
    found = Found()
    for path in _listing(folder):
        _sort_in(path, found)
    return found


def _has_traces(folder: TraceFile) -> bool:
    try:
        return _is_folder(folder) and bool(_traces_of(folder).traces)
    except InputError:  # nobody asked for this one
        return False


def _is_folder(path: TraceFile) -> bool:
    try:
        return path.is_dir()
    except reading_errors():
        return False


def _listing(folder: TraceFile) -> Iterable[TraceFile]:
    try:
        return sorted(folder.iterdir(), key=_natural)
    except reading_errors() as error:
        raise InputError(f"{folder}: cannot be read: {reason(error)}") from error


def _sort_in(path: TraceFile, found: Found) -> None:
    """Put what lies in a folder where it belongs; what is called neither a trace nor JSON belongs nowhere."""
    if not path.name.endswith((*_TRACE_SUFFIXES, *_JSON_SUFFIXES)) or path.name in _OWN_FILES:
        return
    try:
        if _is_trace(path):
            found.traces.append(path)
    except InputError as error:
        found.left_out.append((path, error))


def _is_trace(path: TraceFile) -> bool:
    """Whether what is called one, or JSON, is a trace. InputError for what is no file, or can't be looked into."""
    if (problem := _no_file(path)) is not None:
        raise InputError(f"{path}: {problem}")
    if path.name.endswith(_TRACE_SUFFIXES):
        return True
    text = first_text(path, _LOOK_BYTES)
    return _WITH_TRACKS.match(text) is None and _LOOKS_LIKE_TRACE.search(text) is not None


def _no_file(path: TraceFile) -> str | None:
    """What a path is other than a file; None for a file. Nothing is opened: a pipe would wait for a writer."""
    try:
        if path.is_file():
            return None
        kinds = {"folder": path.is_dir(), "pipe": path.is_fifo(), "device or socket": path.exists()}
    except reading_errors() as error:
        return f"cannot be read: {reason(error)}"
    kind = next((kind for kind, it_is in kinds.items() if it_is), "link to what is not there")
    return f"is a {kind}, no file"


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
