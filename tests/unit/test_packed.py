"""A trace packed into columns: nothing that an audit reads is lost, and no file is believed that was not packed so."""

from __future__ import annotations

import dataclasses
import gzip
import json
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from stepscope.audit.build import audit
from stepscope.cli.main import main
from stepscope.errors import InputError
from stepscope.trace import packed
from stepscope.trace.classify import classify
from stepscope.trace.columns import Events, Trace
from stepscope.trace.discover import find_local_traces, find_traces
from stepscope.trace.frames import Frames
from stepscope.trace.packed import MAGIC, pack, unpack
from stepscope.trace.reader import read
from stepscope_workloads.simulate import Job, Simulation, parse

REAL = ("param_dlrm_v100_8ranks", "hta_gloo_annotations_only", "hta_minitoy_mi250_no_comm")
JOB = Job(sync_events=True, with_stack=True, causes=(parse("host-sync"),))


def plain(found: Trace | Events | Frames) -> dict[str, Any]:
    """All fields but the file's name; columns as their type and values."""
    fields = {field.name: getattr(found, field.name) for field in dataclasses.fields(found)}
    fields.pop("source", None)
    return {
        name: plain(value)
        if isinstance(value, Events | Frames)
        else (value.dtype, value.tolist())
        if isinstance(value, np.ndarray)
        else value
        for name, value in fields.items()
    }


def audits(traces: list[Path], folder: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """What is found in the traces, and in their columns; the files' names are taken out."""
    columns = []
    for file in traces:
        columns.append(folder / f"{file.name.partition('.')[0]}.1{packed.SUFFIX}")
        columns[-1].write_bytes(pack(read(file)))
    found = []
    for files in (traces, columns):
        text = msgspec.json.encode(audit([classify(read(file)) for file in files])).decode()
        for file, other in zip(traces, columns, strict=True):
            text = text.replace(str(file), file.name).replace(str(other), file.name)
        found.append(json.loads(text))
    return found[0], found[1]


@pytest.fixture(scope="module")
def simulated(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("simulated")
    files = []
    for rank, document in enumerate(Simulation(JOB).documents()):
        files.append(folder / f"rank{rank}.1.pt.trace.json.gz")
        files[-1].write_bytes(gzip.compress(json.dumps(document).encode(), 1))
    return files


class TestWhatIsPacked:
    def test_comes_back_as_the_reader_gave_it(self, simulated: list[Path], tmp_path: Path) -> None:
        trace = read(simulated[1])
        file = tmp_path / "rank1.1.columns"
        file.write_bytes(pack(trace))
        assert plain(read(file)) == plain(trace)
        assert read(file).source == str(file)

    def test_gives_the_same_audit_of_a_simulated_gpu_job(self, simulated: list[Path], tmp_path: Path) -> None:
        of_traces, of_columns = audits(simulated, tmp_path)
        assert of_traces["verdict"]["label"] != "undetermined"
        assert of_columns == of_traces

    @pytest.mark.parametrize("name", REAL)
    def test_gives_the_same_audit_of_real_traces(self, shared: Path, name: str, tmp_path: Path) -> None:
        of_traces, of_columns = audits(find_local_traces([str(shared / "traces" / name)]), tmp_path)
        assert of_columns == of_traces

    def test_is_a_fourth_of_the_gzipped_trace_at_most(self, simulated: list[Path]) -> None:
        for file in simulated:
            assert len(pack(read(file))) * 4 < file.stat().st_size

    def test_is_found_in_a_folder(self, simulated: list[Path], tmp_path: Path) -> None:
        file = tmp_path / "rank0.1.columns"
        file.write_bytes(pack(read(simulated[0])))
        assert find_traces([str(tmp_path)]) == [file]

    @pytest.mark.parametrize(
        "options", [["second-opinion"], ["audit", "--report", "perfetto"], ["open", "--tensorboard"]]
    )
    def test_says_to_whoever_needs_its_events_that_it_keeps_none(
        self, simulated: list[Path], options: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        pytest.importorskip("torch_tb_profiler")
        file = tmp_path / "rank0.1.columns"
        file.write_bytes(pack(read(simulated[0])))
        assert main([*options, str(tmp_path)]) == 2
        assert capsys.readouterr().err == (
            f"stepscope: error: {file}: a gathered recording, which keeps what an audit reads and no trace events; record with "
            "`stepscope run --gather --keep-traces`, and name the folder traces in the run directory\n"
        )


def rewritten(content: bytes, change: Callable[[list[Any], dict[str, Any]], None]) -> bytes:
    """The content with its parts changed by whoever knows the format."""
    parts = msgspec.msgpack.decode(content[len(MAGIC) :])
    facts = msgspec.msgpack.decode(zlib.decompress(parts[2]), strict=False)
    change(parts, facts)
    parts[2] = zlib.compress(msgspec.msgpack.encode(facts))
    return MAGIC + msgspec.msgpack.encode(parts)


def _many(parts: list[Any], _facts: dict[str, Any]) -> None:
    parts[0] = 1 << 50


def _bomb(parts: list[Any], _facts: dict[str, Any]) -> None:
    parts[3][2] = zlib.compress(bytes(1 << 24))


def _shorter(parts: list[Any], _facts: dict[str, Any]) -> None:
    parts[0] -= 1


def _no_names(_parts: list[Any], facts: dict[str, Any]) -> None:
    facts["names"] = []


def _far_row(_parts: list[Any], facts: dict[str, Any]) -> None:
    facts["copied_bytes"] = {1 << 40: 1}


def _huge_number(_parts: list[Any], facts: dict[str, Any]) -> None:
    facts["base_ns"] = (1 << 64) - 1


def _missing_column(parts: list[Any], _facts: dict[str, Any]) -> None:
    parts[3].pop()


def _no_category(parts: list[Any], _facts: dict[str, Any]) -> None:
    parts[3][0] = zlib.compress(b"\xff" * parts[0])


@pytest.fixture(scope="module")
def content(simulated: list[Path]) -> bytes:
    return pack(read(simulated[0]))


class TestADamagedFile:
    """Every one of them is refused in one line."""

    def test_that_was_cut_off_anywhere(self, content: bytes, tmp_path: Path) -> None:
        file = tmp_path / "cut.columns"
        for length in [*range(len(MAGIC), 200), *range(200, len(content), 1999)]:
            file.write_bytes(content[:length])
            with pytest.raises(InputError, match=r"^.*cut\.columns: damaged \(.+\); gather it again$"):
                read(file)

    def test_with_a_byte_changed_in_what_was_compressed(self, content: bytes, tmp_path: Path) -> None:
        file = tmp_path / "flipped.columns"
        for place in range(len(MAGIC) + 40, len(content), 997):
            flipped = bytearray(content)
            flipped[place] ^= 0x10
            file.write_bytes(flipped)
            with pytest.raises(InputError, match="damaged"):
                read(file)

    @pytest.mark.parametrize(
        "change",
        [_many, _bomb, _shorter, _no_names, _far_row, _huge_number, _missing_column, _no_category],
    )
    def test_that_was_made_to_harm(
        self, content: bytes, change: Callable[[list[Any], dict[str, Any]], None], tmp_path: Path
    ) -> None:
        file = tmp_path / "harm.columns"
        file.write_bytes(rewritten(content, change))
        with pytest.raises(InputError, match="damaged"):
            unpack(file)
