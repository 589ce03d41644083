"""Which files are meant by the paths on a command line."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from build_trace import TraceBuilder
from stepscope.errors import InputError
from stepscope.trace.discover import find_traces, look_for_traces
from stepscope.trace.files import TraceFile


def trace() -> TraceBuilder:
    builder = TraceBuilder(rank=0)
    builder.step(1, 0, 100)
    return builder


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run directory: traces of eleven ranks, two of them plain, and what else lies there."""
    folder = tmp_path / "run"
    folder.mkdir()
    for rank in range(11):
        trace().write(folder / f"rank{rank}.17.pt.trace.json{'.gz' if rank > 1 else ''}")
    for name in ("run.json", "audit.json", "fabric.json", "results.json"):
        (folder / name).write_text('{"schema": "x", "ph": "X"}' if name != "results.json" else '{"rows": []}')
    (folder / "train.log").write_text("step 1\n")
    return folder


def names(paths: Sequence[TraceFile]) -> list[str]:
    return [path.name for path in paths]


def test_a_run_directory_gives_its_traces_in_the_order_of_the_ranks(run: Path) -> None:
    expected = [f"rank{rank}.17.pt.trace.json{'.gz' if rank > 1 else ''}" for rank in range(11)]
    assert names(find_traces([str(run)])) == expected


def test_any_json_in_a_folder_that_looks_like_a_trace_is_one(tmp_path: Path) -> None:
    builder = trace()
    builder.write(tmp_path / "a.json")
    builder.write(tmp_path / "b.json", header_last=True)
    builder.write(tmp_path / "c.json.gz")
    (tmp_path / "d.json").write_text('[{"ph": "X", "name": "x"}]')
    (tmp_path / "e.json").write_text('{"name": "results"}')
    (tmp_path / "f.json").write_text("")
    (tmp_path / "g.txt").write_text('[{"ph": "X", "name": "x"}]')
    (tmp_path / "h.json.gz").write_bytes(b"\x1f\x8bnothing")
    assert names(find_traces([str(tmp_path)])) == ["a.json", "b.json", "c.json.gz", "d.json"]


def test_a_broken_file_that_is_called_a_trace_is_not_passed_over_in_silence(tmp_path: Path) -> None:
    (tmp_path / "rank0.pt.trace.json").write_text("")
    assert names(find_traces([str(tmp_path)])) == ["rank0.pt.trace.json"]


def odd_entries(folder: Path) -> dict[str, str]:
    """What no trace can be read from, under names of traces and of other JSON: name to what is said of it."""
    os.mkfifo(folder / "rank20.pt.trace.json")
    (folder / "rank21.pt.trace.json.gz").mkdir()
    (folder / "rank22.json").symlink_to(folder / "gone.json")
    (folder / "rank23.columns").symlink_to(folder / "rank23.columns")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(folder / "s.json"))
    return {
        "rank20.pt.trace.json": "is a pipe, no file",
        "rank21.pt.trace.json.gz": "is a folder, no file",
        "rank22.json": "is a link to what is not there, no file",
        "rank23.columns": "is a link to what is not there, no file",
        "s.json": "is a device or socket, no file",
    }


@pytest.mark.parametrize("given", ["run", "run/*", "r*"])
def test_what_is_called_a_trace_and_is_no_file_is_named_and_never_opened(run: Path, given: str) -> None:
    expected = odd_entries(run)
    os.mkfifo(run / "control")
    (run / "checkpoints").mkdir()
    found = look_for_traces([str(run.parent / given)])
    assert len(found.traces) == 11
    assert {path.name: str(why) for path, why in found.left_out} == {
        name: f"{run / name}: {what}" for name, what in expected.items()
    }


def test_whoever_needs_all_traces_is_not_given_some(run: Path) -> None:
    (run / "rank20.pt.trace.json").mkdir()
    with pytest.raises(InputError, match=r"rank20\.pt\.trace\.json: is a folder, no file$"):
        find_traces([str(run)])


def test_a_folder_of_nothing_but_such_says_why_it_has_no_traces(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "rank0.pt.trace.json")
    with pytest.raises(
        InputError, match=r"no traces in it \(.*\): .*rank0.pt.trace.json: is a pipe, no file$"
    ):
        look_for_traces([str(tmp_path)])


def test_other_json_that_may_not_be_read_is_named_and_the_traces_are_found(run: Path) -> None:
    """As root every file can be read, so the test gives root up in a process of its own."""
    (run / "results.json").chmod(0)
    code = (
        "import os; from stepscope.trace.discover import look_for_traces; os.getuid() or os.setuid(65534);"
        "found = look_for_traces(['.']); print(len(found.traces), *(why for _, why in found.left_out))"
    )
    command = [sys.executable, "-c", code]
    said = subprocess.run(command, cwd=run, capture_output=True, text=True, check=True).stdout
    assert said == "11 results.json: cannot be read: Permission denied\n"


def test_a_file_is_taken_as_it_is(run: Path) -> None:
    assert names(find_traces([str(run / "run.json")])) == ["run.json"]
    assert names(find_traces([str(run / "train.log")])) == ["train.log"]


def test_a_glob_gives_the_traces_among_its_matches(run: Path) -> None:
    assert names(find_traces([str(run / "rank1*")])) == [
        "rank1.17.pt.trace.json",
        "rank10.17.pt.trace.json.gz",
    ]
    assert len(find_traces([str(run / "*")])) == 11
    assert len(find_traces([str(run.parent / "**" / "*.gz")])) == 9
    assert len(find_traces([str(run.parent / "r*")])) == 11


def test_a_shells_own_expansion_of_a_run_directory_is_understood(run: Path) -> None:
    shell = [str(path) for path in run.iterdir() if path.name not in {"train.log", "results.json"}]
    assert len(find_traces(shell)) == 11


def test_a_trace_that_is_named_twice_is_found_once(run: Path) -> None:
    assert len(find_traces([str(run), str(run / "rank3*"), f"{run}/../run/rank1.17.pt.trace.json"])) == 11


def test_a_name_with_brackets_is_a_name_before_it_is_a_glob(tmp_path: Path) -> None:
    trace().write(tmp_path / "rank[0].json")
    assert names(find_traces([str(tmp_path / "rank[0].json")])) == ["rank[0].json"]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("none", "none: no such file or folder; name a trace file, a run directory or a glob"),
        ("none*", "none*: no such file or folder; name a trace file, a run directory or a glob"),
        ("blank", "blank: no traces in it (*.pt.trace.json, *.pt.trace.json.gz or *.columns)"),
        (
            "bla*",
            "bla*: nothing that it matches is a trace (*.pt.trace.json, *.pt.trace.json.gz or *.columns)",
        ),
        (".", ": no traces in it, but in its folders (run); name one of them"),
    ],
)
def test_what_gives_no_trace_is_said_in_one_line(run: Path, given: str, message: str) -> None:
    (run.parent / "blank").mkdir()
    with pytest.raises(InputError) as caught:
        find_traces([str(run.parent / given)])
    assert str(caught.value).endswith(message)


def test_no_path_at_all_is_said_in_one_line() -> None:
    with pytest.raises(InputError, match="no trace given"):
        find_traces([])
