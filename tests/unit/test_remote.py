"""Traces in a store are read as those of this machine are, and what stands in the way is said in one line."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

from build_trace import TraceBuilder
from stepscope.cli.main import main
from stepscope.errors import InputError
from stepscope.trace.discover import find_local_traces, find_traces
from stepscope.trace.files import RemoteFile, located
from stepscope.trace.reader import read

fsspec = import_module("fsspec")  # it ships no types


def trace(rank: int) -> TraceBuilder:
    made = TraceBuilder(rank=rank, world_size=2, base_ns=1_700_000_000_000_000_000)
    made.step(5, 1000, 600)
    made.kernel("gemm_forward", launched=1040, start=1100, duration=100)
    made.backward("MmBackward0", 1060, 20)
    made.collective("allreduce", launched=1090, start=1250, duration=100, elements=1 << 20, sequence=7)
    made.optimizer(1420, 30)
    return made


@pytest.fixture
def run(tmp_path: Path) -> Iterator[str]:
    """A run directory in fsspec's store in memory, and the same in `tmp_path / "run"`."""
    folder = tmp_path / "run"
    folder.mkdir()
    for rank in (10, 2):
        trace(int(rank == 10)).write(folder / f"rank{rank}.1.pt.trace.json.gz")
    (folder / "notes.json").write_text('{"about": "nothing"}')
    (folder / "run.json").write_text("{}")
    store = fsspec.filesystem("memory")
    store.put(f"{folder}/", "/bucket/run", recursive=True)
    yield "memory://bucket/run"
    store.rm("/bucket", recursive=True)


def names(paths: list[str]) -> list[str]:
    return [file.name for file in find_traces(paths)]


BOTH = ["rank2.1.pt.trace.json.gz", "rank10.1.pt.trace.json.gz"]


@pytest.mark.parametrize("path", ["", "/", "/rank*.json.gz", "/*"])
def test_a_folder_of_a_store_and_a_glob_in_it_give_its_traces(run: str, path: str) -> None:
    assert names([run + path]) == BOTH


def test_one_file_of_a_store_is_read_like_a_file_here(run: str, tmp_path: Path) -> None:
    there, here = read(f"{run}/{BOTH[0]}"), read(tmp_path / "run" / BOTH[0])
    assert there.source == f"{run}/{BOTH[0]}"
    assert there.header == here.header
    assert there.events.start.tolist() == here.events.start.tolist()


def test_a_file_url_is_a_file_of_this_machine(run: str, tmp_path: Path) -> None:
    assert located(f"file://{tmp_path}/run") == tmp_path / "run"
    assert find_traces([f"file://{tmp_path}/run"]) == find_traces([str(tmp_path / "run")])


def test_the_audit_of_a_store_is_that_of_the_files_and_stays_on_this_machine(
    run: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["audit", run, "--json", "remote.json"]) == 0
    assert main(["audit", "run", "--json", "local.json"]) == 0
    remote, local = (Path(name).read_text() for name in ("remote.json", "local.json"))
    assert json.loads(remote.replace("memory:///bucket/run", "run")) == json.loads(local)
    assert not fsspec.filesystem("memory").exists("/bucket/run/audit.json")
    assert Path("run/audit.json").exists()
    said = capsys.readouterr().out
    assert "Wrote remote.json" in said
    assert "  from memory:///bucket/run\n" in said


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("memory://nowhere/run", r"memory://nowhere/run: no such file or folder"),
        ("memory://nowhere/rank*", r"memory://nowhere/rank\*: no such file or folder"),
        ("nosuch://bucket/run", r"nosuch://bucket/run: no way to read nosuch://"),
    ],
)
def test_what_is_not_there_is_said_in_one_line(path: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        find_traces([path])


def test_a_missing_package_is_named_with_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "s3fs", None)
    with pytest.raises(
        InputError, match=r"reading s3:// needs stepscope\[remote\] and s3fs, which is not installed"
    ):
        find_traces(["s3://bucket/run"])
    monkeypatch.setitem(sys.modules, "fsspec", None)
    with pytest.raises(InputError, match=r"reading gs:// needs stepscope\[remote\] and gcsfs"):
        find_traces(["gs://bucket/run"])


@pytest.mark.parametrize(
    "command",
    [["audit"], ["predict"], ["second-opinion"], ["compare", "s3://bucket/run"]],
    ids=lambda words: words[0],
)
def test_a_store_that_there_is_no_way_to_is_named_as_it_was_typed(
    command: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "s3fs", None)
    assert main([*command, "s3://bucket/run"]) == 2
    assert capsys.readouterr().err.startswith("stepscope: error: s3://bucket/run: reading s3:// needs")


@pytest.mark.parametrize("command", [["audit"], ["predict"]], ids=lambda words: words[0])
def test_a_store_that_refuses_is_named_as_it_was_typed(
    command: list[str], run: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(*_args: object, **_kwargs: object) -> None:
        raise PermissionError(13, "Access denied")

    monkeypatch.setattr(type(fsspec.filesystem("memory")), "isfile", refuse)
    assert main([*command, run]) == 2
    assert capsys.readouterr().err == "stepscope: error: memory://bucket/run: cannot be read: Access denied\n"


@pytest.mark.parametrize(
    "command", [["open"], ["open", "--tensorboard"], ["cost", "--run"], ["audit", ".", "--baseline"]]
)
def test_what_reads_this_machine_only_says_so_of_a_store(
    command: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*command, "s3://bucket/run"]) == 2
    assert capsys.readouterr().err == (
        "stepscope: error: s3://bucket/run: is in a store, and only files of this machine are read here; copy it here first\n"
    )


def test_an_error_of_the_store_is_said_in_one_line(run: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_args: object, **_kwargs: object) -> None:
        raise PermissionError(13, "Access denied")

    monkeypatch.setattr(type(fsspec.filesystem("memory")), "isdir", refuse)
    with pytest.raises(InputError, match=r"memory://bucket/run: cannot be read: Access denied"):
        find_traces([run])


def test_what_a_driver_logs_while_it_tries_again_is_not_printed(run: str) -> None:
    assert find_traces([run])
    handlers = logging.getLogger("fsspec").handlers
    assert any(isinstance(handler, logging.NullHandler) for handler in handlers)


def test_a_store_that_is_set_up_wrong_is_said_in_one_line(run: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As s3fs says it of an AWS_ENDPOINT_URL that is no URL, once it is asked for something."""

    def refuse(*_args: object, **_kwargs: object) -> None:
        raise ValueError("Invalid endpoint: nonsense")

    monkeypatch.setattr(type(fsspec.filesystem("memory")), "isdir", refuse)
    with pytest.raises(InputError, match=r"memory://bucket/run: cannot be read: Invalid endpoint: nonsense"):
        find_traces([run])


def test_other_tools_are_given_files_of_this_machine_only(run: str) -> None:
    with pytest.raises(
        InputError, match="other tools read files of this machine only; copy the traces here first"
    ):
        find_local_traces([run])


def test_a_stores_name_is_the_last_part_of_its_path() -> None:
    assert (RemoteFile("s3://bucket/run/") / "rank0.json").name == "rank0.json"
    assert str(RemoteFile("s3://bucket/run/") / "rank0.json") == "s3://bucket/run/rank0.json"
