"""`stepscope open`: the page of a run, and TensorBoard with the real plugin on a run that was recorded."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from build_trace import TraceBuilder
from recordings import Finished, Started
from stepscope.audit.result import Audit
from stepscope.cli.main import main
from stepscope.cli.open import page_of
from stepscope.trace.discover import find_traces

PLUGIN = "data/plugin/pytorch_profiler"
WITHOUT = (
    "import sys; sys.modules[sys.argv[1]] = None; sys.argv[1:2] = []; from stepscope.cli.main import main; "
)


@pytest.fixture(autouse=True)
def no_display(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with one trace."""
    made = tmp_path / "a run"
    made.mkdir()
    trace = TraceBuilder(rank=0, world_size=2)
    trace.step(5, 0, 1000)
    trace.kernel("gemm", launched=40, start=100, duration=100)
    trace.write(made / "rank0.pt.trace.json")
    return made


def test_the_page_is_made_once_and_again_after_a_new_audit(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page, audited = folder / "report.html", folder / "audit.json"
    assert main(["open", str(folder)]) == 0
    assert capsys.readouterr().out.splitlines()[:2] == [f"Wrote {audited}", f"Wrote {page}"]
    assert page.read_text("utf-8").startswith("<!doctype html>")
    written = page.stat().st_mtime_ns
    assert main(["open", str(audited)]) == 0
    assert "Wrote" not in capsys.readouterr().out
    assert page.stat().st_mtime_ns == written
    os.utime(audited, ns=(written + 1, written + 1))
    assert main(["open", str(folder)]) == 0
    assert capsys.readouterr().out.splitlines()[0] == f"Wrote {page}"


def test_audits_in_one_folder_have_a_page_each(folder: Path) -> None:
    page_of(str(folder))
    other = folder / "other.json"
    other.write_bytes((folder / "audit.json").read_bytes())
    assert page_of(str(other)) == folder / "other.html"


def test_the_page_in_a_run_directory_is_no_trace(folder: Path) -> None:
    main(["open", str(folder)])
    assert [path.name for path in find_traces([str(folder)])] == ["rank0.pt.trace.json"]


def test_without_a_display_it_says_how_to_look_from_elsewhere(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["open", str(folder), "--port", "8123"]) == 0
    told = capsys.readouterr().out
    assert f"  scp {socket.gethostname()}:'{folder / 'report.html'}' .\n" in told
    assert f"  python -m http.server 8123 --bind 127.0.0.1 --directory '{folder}'\n" in told
    assert f"  ssh -L 8123:localhost:8123 {socket.gethostname()}\n" in told


def test_with_a_browser_the_page_is_opened_in_it(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    seen = tmp_path / "seen"
    browser = tmp_path / "browser"
    browser.write_text(f'#!/bin/sh\necho "$1" > {seen}\n')
    browser.chmod(0o755)
    done = subprocess.run(
        [sys.executable, "-m", "stepscope", "open", str(folder)],
        env={**os.environ, "BROWSER": f"{browser} %s"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.splitlines()[-1] == f"Opened {folder / 'report.html'}"
    assert seen.read_text().strip() == (folder / "report.html").as_uri()


@pytest.mark.parametrize("arguments", [[], ["--tensorboard"]])
def test_what_is_no_run_is_one_line(
    tmp_path: Path, arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["open", str(tmp_path / "nothing"), *arguments]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"stepscope: error: {tmp_path / 'nothing'}")


def test_a_page_of_somebody_else_stays_as_it_is(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = folder / "report.html"
    page.write_text("<!doctype html>\n<title>my notes</title>\n", "utf-8")
    assert main(["open", str(folder)]) == 2
    assert f"{page} is no page of stepscope's and stays as it is" in capsys.readouterr().err
    assert page.read_text("utf-8") == "<!doctype html>\n<title>my notes</title>\n"


@pytest.mark.parametrize("port", ["-1", "70000", "http"])
def test_a_port_that_is_none_is_refused(port: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["open", "run", f"--port={port}"]) == 2
    assert "is no port; give a number from 0 to 65535" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("module", "arguments", "extra"),
    [
        ("torch_tb_profiler", ["--tensorboard"], "tensorboard"),
        ("tensorboard", ["--tensorboard"], "tensorboard"),
        ("jinja2", [], "html"),
        ("altair", [], "html"),
    ],
)
def test_a_missing_package_is_one_line_with_the_command_to_run(
    folder: Path, module: str, arguments: list[str], extra: str
) -> None:
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            WITHOUT + "sys.exit(main(sys.argv[1:]))",
            module,
            "open",
            str(folder),
            *arguments,
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert module in line
    assert line.endswith(f"pip install 'stepscope[{extra}]'")


def test_a_port_in_use_is_one_line(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as taken:
        taken.bind(("localhost", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert main(["open", str(folder), "--tensorboard", "--port", str(port)]) == 2
    last = capfd.readouterr().err.splitlines()[-1]
    assert last.startswith("stepscope: error: TensorBoard did not start: ")
    assert str(port) in last


class Board:
    """TensorBoard as the command serves it."""

    def __init__(self, run_dir: Path) -> None:
        self.started = Started(run_dir, "--tensorboard", "--no-browser", "--port", "0", command="open")
        assert self.started.process.stdout is not None
        self.told = self.started.process.stdout.readline()
        self.address = self.told.split(" at ")[1].split("#")[0]

    def ask(self, path: str) -> Any:
        with urllib.request.urlopen(f"{self.address}{PLUGIN}/{path}", timeout=200) as answer:
            return json.load(answer)

    def loaded(self) -> None:
        """Wait until the plugin has read the traces."""
        while not self.ask("runs")["runs"]:
            time.sleep(0.5)

    def stop(self) -> int:
        self.started.process.send_signal(signal.SIGINT)
        return self.started.finish().code


@pytest.fixture(scope="module")
def recorded(ddp_run: tuple[Finished, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    finished, run_dir = ddp_run
    assert finished.code == 0, finished.stderr
    return shutil.copytree(run_dir, tmp_path_factory.mktemp("board") / "recorded")


@pytest.fixture
def board(recorded: Path) -> Iterator[Board]:
    made = Board(recorded)
    yield made
    if made.started.process.poll() is None:
        made.stop()


@pytest.mark.slow
def test_the_distributed_view_shows_both_ranks_with_our_communication(board: Board, recorded: Path) -> None:
    board.loaded()
    assert board.ask("runs")["runs"] == ["recorded"]
    assert "Distributed" in board.ask("views?run=recorded")
    where = "run=recorded&worker=All&span=1"
    overlap = board.ask(f"distributed/overlap?{where}")
    assert overlap["metadata"]["legends"] == ["Computation", "Overlapping", "Communication", "Other"]
    audit = msgspec.json.decode((recorded / "audit.json").read_bytes(), type=Audit)
    steps = {str(step.step): step for step in audit.ranks[0].steps}
    assert set(overlap["data"]) == {"all", *steps}
    assert all(set(ranks) == {"rank0", "rank1"} for ranks in overlap["data"].values())
    operations = board.ask(f"distributed/commops?{where}")["data"]
    for rank in audit.ranks:
        (row,) = operations[f"rank{rank.rank}"]["rows"]
        name, calls, _, _, microseconds = row[:5]
        assert (name, calls) == ("gloo:all_reduce", rank.totals.collectives)
        assert microseconds == pytest.approx(1000 * rank.totals.comm_ms, rel=1e-5)
    assert board.stop() == 0
    assert board.started.leftovers() == []


@pytest.mark.slow
def test_ctrl_c_while_the_plugin_reads_ends_at_once_and_leaves_nothing(board: Board, recorded: Path) -> None:
    assert board.told.startswith(f"TensorBoard shows {recorded} at http://localhost:")
    assert board.stop() == 0
    assert board.started.leftovers() == []
