"""Which files are meant by the paths on a command line."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from build_trace import TraceBuilder
from stepscope.errors import InputError
from stepscope.trace.discover import find_traces
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
        ("blank", "blank: no traces in it (*.pt.trace.json or *.pt.trace.json.gz)"),
        ("bla*", "bla*: nothing that it matches is a trace (*.pt.trace.json or *.pt.trace.json.gz)"),
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
