"""What `make bench` measures and says of it: each contestant's own figures, and how they compare."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from benchmarks.contest import Contestant, compete, warm_up
from benchmarks.read_trace import main, revision
from benchmarks.sources import Measured
from benchmarks.speed_page import Contest, section

TRACE = '{"traceEvents": [{"ph": "X", "name": "a", "cat": "cpu_op", "pid": 1, "tid": 1, "ts": 1, "dur": 2}]}'


def contest(text_mb: int = 200) -> Contest:
    trace = Measured(Path("real.json.gz"), "real, grown", text_mb * 1_000_000, 12_345_678)
    return Contest(
        trace,
        [
            Contestant("floor", "python", "", "", [1.0, 2.0], [1.0, 2.0], [20, 21], "9 events"),
            Contestant("audit", "python", "", "", [2.0, 3.0], [2.5, 2.7], [70, 90], "a verdict"),
            Contestant("hta", "python", "", "0.5.0", [40.0], [39.0], [900], "overlap"),
            Contestant("tracelens", "python", "", "1a2b", failure="No module named 'orjson'"),
        ],
    )


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_a_table_compares_within_a_round() -> None:
    lines = "\n".join(section(contest())).split("\n\n")[1].splitlines()
    assert len({len(line) for line in lines}) == 1, "the columns are aligned"
    assert [cells(line) for line in [lines[0], *lines[2:]]] == [
        ["", "wall, s", "CPU, s", "MB/s", "peak memory, MB", "x floor", "it found"],
        [
            *("floor: inflate, count events", "1.50 (1.00..2.00)", "1.50", "133", "21", "1.00 (1.00..1.00)"),
            "9 events",
        ],
        [
            *("stepscope: whole audit", "2.50 (2.00..3.00)", "2.60", "80", "90", "1.75 (1.50..2.00)"),
            "a verdict",
        ],
        [
            *("HolisticTraceAnalysis 0.5.0: load, overlap", "40.00 (40.00..40.00)", "39.00", "5", "900"),
            *("40.00 (40.00..40.00)", "overlap"),
        ],
        ["TraceLens 1a2b: load, breakdown", *[""] * 5, "failed: No module named 'orjson'"],
    ]


def test_what_is_aimed_at_is_held_or_not_on_a_large_trace_alone() -> None:
    assert "\n".join(section(contest())).split("\n\n")[2].splitlines() == [
        "- Whole audit: 1.75 times the floor (aim: 2, held).",
        "- Whole audit: 20.0 times as fast as HolisticTraceAnalysis 0.5.0 (aim: 25, **not held**), 0.10 of its peak memory.",
    ]
    assert "\n".join(section(contest(text_mb=10))).split("\n\n")[2].splitlines() == [
        "- Whole audit: 20.0 times as fast as HolisticTraceAnalysis 0.5.0, 0.10 of its peak memory.",
    ]


def test_a_contestant_is_compiled_before_it_counts_and_its_peak_is_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process starts with the peak of the one that started it, and without compiled files every run compiles."""
    trace, package = tmp_path / "t.json", tmp_path / "package"
    trace.write_text(TRACE)
    package.mkdir()
    (package / "orjson.py").touch()
    (package / "TraceLens.py").write_text("import no_such_need\n")
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    held = bytearray(200_000_000)
    contestants = [
        Contestant("read", sys.executable),
        Contestant("tracelens", sys.executable, path=str(package)),
    ]
    ready = warm_up(contestants, trace, limit_s=60)
    assert list((package / "__pycache__").glob("TraceLens.*.pyc"))
    read, peer = compete(ready, trace, runs=2, peer_runs=1, limit_s=60)
    assert (len(read.seconds), len(peer.seconds)) == (2, 0)
    assert peer.failure == "ModuleNotFoundError: No module named 'no_such_need'"
    assert read.found == "1 events of 1 names"
    assert 10 < read.peak_mb[0] < len(held) / 1e6


def test_the_page_says_how_it_was_made(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace, out = tmp_path / "t.json", tmp_path / "page"
    trace.write_text(TRACE)
    sizes, runs = ("--size-mb", "0"), ("--runs", "1", "--peer-runs", "0")
    options = ["--source", str(trace), *sizes, *runs, "--page", str(out)]
    assert main(options) == 0
    written = (out / "README.md").read_text("utf-8")
    assert (
        "Made by `python -m benchmarks --source t.json --size-mb 0 --runs 1 --peer-runs 0 --page page`"
        in written
    )
    everything = written + (out / "study.json").read_text("utf-8")
    assert str(tmp_path) not in everything and sys.executable not in everything, "no place on this machine"
    assert "## t, no Python stacks, as it is: 0 MB (0.0 MB gzipped)" in written
    table = [line for line in written.splitlines() if line.startswith("|")]
    assert [cells(line)[0].partition(":")[0] for line in table[2:]] == ["floor", *["stepscope"] * 3]
    assert "\n".join(table) in capsys.readouterr().out, "as on the terminal"
    (measured,) = json.loads((out / "study.json").read_text("utf-8"))["traces"]
    assert measured["text_bytes"] == len(TRACE)
    assert [len(one["seconds"]) for one in measured["contestants"]] == [1] * 4


def test_without_a_trace_there_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--source", str(tmp_path / "none.json"), "--size-mb", "0"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("nothing to measure: [Errno 2] No such file or directory")


def test_a_checkout_is_named_by_its_own_commit(tmp_path: Path) -> None:
    git = ("git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a@b.c")
    subprocess.run([*git, "init", "--quiet"], check=True)
    assert revision(tmp_path) == "of unknown revision"
    subprocess.run([*git, "commit", "--quiet", "--allow-empty", "-m", "one"], check=True)
    head = subprocess.run([*git, "rev-parse", "HEAD"], check=True, capture_output=True, text=True).stdout
    assert revision(tmp_path) == head[:12]
    (tmp_path / "inside").mkdir()
    assert revision(tmp_path / "inside") == "of unknown revision"
