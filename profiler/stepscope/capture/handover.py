"""`run --gather`: at the end of its script a rank reduces its trace to what the audit reads, and rank 0 collects that."""

from __future__ import annotations

import shutil
from pathlib import Path

import msgspec

from stepscope.capture.config import CaptureConfig
from stepscope.capture.meeting import PATIENCE_SECONDS, Absent, Meeting, job_store
from stepscope.capture.metadata import RANK_FILE, RankMetadata, write_json
from stepscope.errors import InputError
from stepscope.trace.packed import SUFFIX, pack
from stepscope.trace.reader import read

KEPT_TRACES = "traces"
"""The folder of the run directory with the traces that were gathered from, apart: they and their columns are one run."""

_TRACE_SUFFIX = ".pt.trace.json.gz"


class _Parcel(msgspec.Struct, array_like=True):
    """What a rank hands over."""

    metadata: RankMetadata
    columns: bytes


def hand_over(
    config: CaptureConfig, metadata: RankMetadata, patience: float = PATIENCE_SECONDS
) -> str | None:
    """Meet the other ranks and give rank 0 this one's part of the run, the trace as columns.

    All ranks call it, those without a trace too. Rank 0's run directory has everything then, the others' no more than their own
    metadata. Returns why not, where not all came or rank 0 cannot keep what it gets: all is as it was.
    """
    trace = None if metadata.trace is None else Path(config.trace_dir, metadata.trace)
    try:
        mine = _reduced(metadata, trace)
        meeting = Meeting(job_store(), "gather", metadata.rank, metadata.world_size, patience)
        with _Collection(Path(config.run_dir), metadata.world_size) as collection:
            meeting.gather(msgspec.msgpack.encode(mine), collection.add)
        meeting.announce("kept")
        try:
            _let_go(trace, mine.metadata, config)
        finally:
            meeting.close()
    except (Absent, OSError) as reason:
        return f"not gathered, so the traces are kept: {reason}"
    return None


def _reduced(metadata: RankMetadata, trace: Path | None) -> _Parcel:
    if trace is None:
        return _Parcel(msgspec.structs.replace(metadata, gathered=True), b"")
    try:
        columns = pack(read(trace))
    except InputError as error:
        return _Parcel(msgspec.structs.replace(metadata, gathered=True, trace=None, problem=str(error)), b"")
    name, size = trace.name.removesuffix(_TRACE_SUFFIX) + SUFFIX, trace.stat().st_size
    return _Parcel(msgspec.structs.replace(metadata, gathered=True, trace=name, trace_bytes=size), columns)


class _Collection:
    """What rank 0 has been given so far; nothing of it is seen before all is there."""

    def __init__(self, run_dir: Path, world_size: int) -> None:
        self._run_dir, self._world_size = run_dir, world_size
        self._drafts: dict[Path, Path] = {}
        self._ranks: list[RankMetadata] = []

    def __enter__(self) -> _Collection:
        return self

    def __exit__(self, *_exception: object) -> None:
        for draft in self._drafts.values():
            draft.unlink(missing_ok=True)

    def add(self, _rank: int, content: bytes) -> None:
        """Take one rank's; with the last one all are there."""
        parcel = msgspec.msgpack.decode(content, type=_Parcel)
        self._ranks.append(parcel.metadata)
        if parcel.metadata.trace is not None:
            file = self._run_dir / parcel.metadata.trace
            draft = self._drafts[file] = file.with_name(f".{file.name}.part")
            draft.write_bytes(parcel.columns)
        if len(self._ranks) == self._world_size:
            self._complete()

    def _complete(self) -> None:
        for file, draft in self._drafts.items():
            draft.replace(file)
        for metadata in self._ranks:
            write_json(self._run_dir / RANK_FILE.format(rank=metadata.rank), metadata)


def _let_go(trace: Path | None, metadata: RankMetadata, config: CaptureConfig) -> None:
    """The trace has done its service, unless it is to be kept or could not be read."""
    write_json(Path(config.run_dir) / RANK_FILE.format(rank=metadata.rank), metadata)
    if trace is None or metadata.trace is None:
        return
    if config.keep_traces:
        folder = Path(config.run_dir, KEPT_TRACES)
        folder.mkdir(exist_ok=True)
        shutil.move(trace, folder / trace.name)
    else:
        trace.unlink()
