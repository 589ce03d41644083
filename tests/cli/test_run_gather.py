"""`stepscope run --gather`: two launches as two nodes that share no storage, and one audit of both."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import msgspec
import pytest

from recordings import Finished, Started, trace_files, two_nodes
from stepscope.capture.metadata import load_run
from stepscope.cli.audit import audit_paths
from stepscope.cli.main import main

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """The run directories of the two nodes."""
    return [tmp_path_factory.mktemp(f"node{node}") / "run" for node in range(2)]


@pytest.fixture(scope="module")
def nodes(folders: list[Path]) -> list[Finished]:
    shape = two_nodes()
    started = [
        Started("--gather", "--keep-traces", "--out", folder, *shape, f"--node-rank={node}", "ddp.py")
        for node, folder in enumerate(folders)
    ]
    return [one.finish() for one in started]


def without_files(text: bytes) -> Any:
    """An audit without the names of its files, which differ."""
    return json.loads(re.sub(rb'"[^"]*/(rank\d)\.\d+\.[^"]*"', rb'"\1"', text))


def test_both_nodes_end_well_and_rank_0_has_all_of_it(nodes: list[Finished], folders: list[Path]) -> None:
    first, second = nodes
    assert (first.code, second.code) == (0, 0), first.stderr + second.stderr
    assert sorted(re.sub(r"\.\d+", "", file.name) for file in folders[0].iterdir()) == [
        "audit.json",
        "rank0.columns",
        "rank1.columns",
        "run.json",
        "traces",
    ]
    assert [(rank.rank, rank.status, rank.recorded_steps) for rank in load_run(folders[0]).ranks] == [
        (0, "ended", [6, 7, 8]),
        (1, "ended", [6, 7, 8]),
    ]


def test_the_other_node_keeps_nothing_but_the_trace_it_was_asked_to_keep(
    nodes: list[Finished], folders: list[Path]
) -> None:
    assert nodes[1].last_error_line == f"stepscope: the node of rank 0 writes the results into {folders[1]}"
    assert [file.name for file in folders[1].iterdir()] == ["traces"]
    assert [file.name.partition(".")[0] for file in trace_files(folders[1] / "traces")] == ["rank1"]


def test_how_much_was_moved_is_said(nodes: list[Finished], folders: list[Path]) -> None:
    traces = [file for folder in folders for file in trace_files(folder / "traces")]
    moved = sum(file.stat().st_size for file in folders[0].glob("*.columns")) / 1e6
    instead = sum(file.stat().st_size for file in traces) / 1e6
    assert (
        f"stepscope: gathered {moved:.2f} MB from 2 ranks in place of {instead:.2f} MB of traces"
        in nodes[0].stderr.splitlines()
    )
    assert moved * 3 < instead


def test_the_audit_is_that_of_the_traces_to_the_last_figure(
    nodes: list[Finished], folders: list[Path], tmp_path: Path
) -> None:
    assert nodes[0].code == 0
    shutil.copy(folders[0] / "run.json", tmp_path)
    for folder in folders:
        for file in trace_files(folder / "traces"):
            shutil.copy(file, tmp_path)
    of_traces = msgspec.json.encode(audit_paths([str(tmp_path)]))
    of_columns = (folders[0] / "audit.json").read_bytes()
    assert without_files(of_columns) == without_files(of_traces)
    assert b'"rank1"' in re.sub(rb'"[^"]*/(rank\d)\.\d+\.[^"]*"', rb'"\1"', of_columns)


def test_traces_can_be_kept_only_where_they_would_go(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "--keep-traces", "ddp.py"]) == 2
    assert capsys.readouterr().err == (
        "stepscope: error: --keep-traces goes with --gather; without it the traces are kept in any case\n"
    )
