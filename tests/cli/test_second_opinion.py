"""`stepscope second-opinion` from outside, and the process in which a peer runs: crashes, hangs and appetite end there."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import jsonschema
import pytest

from exposed_trace import write_trace
from stepscope.cli.main import main
from stepscope.schema.generate import SCHEMAS
from stepscope.second_opinion import opinion, peers
from stepscope.second_opinion.peers import Limits, ask

PEERS = {
    "answers": "answer_each(sys.argv[1:], lambda file: {'overlap': 0.25, 'compute_ms': float('nan')})",
    "raises": "answer_each(sys.argv[1:], lambda file: 1 / 0)",
    "crashes": "answer_each(sys.argv[1:2] + sys.argv[2:3], lambda file: {'overlap': 1.0}); os.abort()",
    "leaves": "sys.exit(3)",
    "hangs": "time.sleep(600)",
    "litters": "tempfile.mkdtemp(); os.abort()",
    "eats": "answer_each(sys.argv[1:], lambda file: {'overlap': float(len(bytearray(1 << 33)))})",
}


@pytest.fixture
def peer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> str:
    """A module that behaves as PEERS says."""
    text = f"import os, sys, tempfile, time\nfrom stepscope.second_opinion.worker import answer_each\n{PEERS[request.param]}\n"
    (tmp_path / f"peer_{request.param}.py").write_text(text, "utf-8")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    return f"peer_{request.param}"


FILES = (Path("/traces/a.json"), Path("/traces/b.json"))


@pytest.mark.parametrize("peer", ["answers"], indirect=True)
def test_a_figure_that_is_nan_is_no_figure(peer: str) -> None:
    asked = ask(peer, FILES, Limits())
    assert {source: reply.answer for source, reply in asked.replies.items()} == {
        "/traces/a.json": {"overlap": 0.25},
        "/traces/b.json": {"overlap": 0.25},
    }
    assert asked.ended is None


@pytest.mark.parametrize("peer", ["litters"], indirect=True)
def test_what_a_peer_leaves_among_temporary_files_is_taken_away(
    peer: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    assert ask(peer, FILES, Limits()).ended == "its process ended by SIGABRT"
    assert list((tmp_path / "temporary").iterdir()) == []


@pytest.mark.parametrize("peer", ["raises"], indirect=True)
def test_an_error_of_a_peer_is_one_line_a_file(peer: str) -> None:
    asked = ask(peer, FILES, Limits())
    assert [reply.error for reply in asked.replies.values()] == ["ZeroDivisionError: division by zero"] * 2


@pytest.mark.parametrize("peer", ["crashes"], indirect=True)
def test_what_a_peer_answered_before_it_crashed_is_kept(peer: str) -> None:
    asked = ask(peer, FILES, Limits())
    assert list(asked.replies) == ["/traces/a.json"]
    assert asked.ended == "its process ended by SIGABRT"


@pytest.mark.parametrize("peer", ["leaves"], indirect=True)
def test_a_peer_that_just_leaves_is_told_with_its_exit_code(peer: str) -> None:
    assert ask(peer, FILES, Limits()).ended == "its process ended with exit code 3"


@pytest.mark.parametrize("peer", ["hangs"], indirect=True)
def test_a_peer_that_hangs_is_ended_at_its_time_limit(peer: str) -> None:
    assert ask(peer, FILES, Limits(seconds=1.5)).ended == "not done after 1.5 s; raise --time-limit"


@pytest.mark.parametrize("peer", ["eats"], indirect=True)
def test_a_peer_that_eats_memory_fails_at_its_limit_and_not_we(peer: str) -> None:
    asked = ask(peer, FILES, Limits(memory_bytes=2 << 30))
    assert [reply.error for reply in asked.replies.values()] == ["MemoryError: "] * 2


def test_without_the_peers_it_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(opinion, "version_of", lambda distribution: None)
    assert main(["second-opinion", str(write_trace(tmp_path / "rank0.json"))]) == 2
    err = capsys.readouterr().err
    assert "HolisticTraceAnalysis is not installed: pip install 'stepscope[second-opinion]'" in err
    assert peers.INSTALL in err


@pytest.mark.slow
def test_both_peers_beside_us_in_80_columns_in_json_and_in_markdown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("hta", reason="needs stepscope[second-opinion]")
    monkeypatch.chdir(tmp_path)  # paths, which no line breaks, are as long as they are
    trace = str(write_trace(Path("rank0.json"), exposed_us=150.0))
    answer, page = Path("answer.json"), Path("page.md")
    assert main(["second-opinion", trace, "--json", str(answer)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    assert lines[-1] == f"Wrote {answer}"
    assert any(line.split()[:5] == ["0", "HTA", "overlap", "50.00", "%"] for line in lines)
    plain = json.loads(answer.read_text("utf-8"))
    schema = next(file for file in SCHEMAS if file.name == "second-opinion-1.json")
    jsonschema.Draft202012Validator(json.loads(schema.read_text("utf-8"))).validate(plain)
    assert all(
        figure["agrees"] for one in plain["opinions"] for figure in one["figures"] if "theirs" in figure
    )
    assert main(["second-opinion", trace, "--report", "markdown", "-o", str(page)]) == 0
    assert "| 0 | HTA | overlap | 50.00 % | 50.00 % | 50.00 % | 0.000 |" in page.read_text("utf-8")


@pytest.mark.parametrize(
    ("options", "line"),
    [
        (["gone.json"], "gone.json: no such file or folder; name a trace file, a run directory or a glob"),
        (["--time-limit", "-1", "x"], "argument --time-limit: '-1' is no number above 0 (see `stepscope second-opinion --help`)"),
        (["--report", "html", "x"], "no report 'html'; there are markdown, terminal"),
    ],
)  # fmt: skip
def test_a_mistake_is_one_line(options: list[str], line: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["second-opinion", *options]) == 2
    assert capsys.readouterr() == ("", f"stepscope: error: {line}\n")


def test_a_trace_that_is_cut_off_is_no_whole_one_and_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trace = write_trace(tmp_path / "rank0.json")
    text = trace.read_text("utf-8")
    trace.write_text(text[: len(text) * 3 // 4], "utf-8")
    assert main(["second-opinion", str(trace)]) == 2
    assert "no whole Kineto trace" in capsys.readouterr().err
