"""`stepscope run` on command lines that cannot work: one line each, exit code 2, before any process is started."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from stepscope.capture.config import DEFAULT_STEPS, DEFAULT_WARMUP
from stepscope.cli.main import main

WITHOUT_TORCH = "import sys; sys.modules['torch'] = None; from stepscope.cli.main import main; sys.exit(main(sys.argv[1:]))"


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["nothere.py"], "no script 'nothere.py', and no workload of that name; workloads: gpt, gpt-faults"),
        (["-m", "nothere"], "no module named 'nothere' here or installed; -m takes what `python -m` takes"),
        (["--xyzzy", "gpt"], "unrecognized arguments: --xyzzy (see `stepscope run --help`)"),
        (
            ["--warmup", "0", "gpt"],
            "argument --warmup: '0' is no whole number from 1 on (see `stepscope run --help`)",
        ),
        (
            ["--no-python", "gpt"],
            "--no-python starts something that is not Python, and only Python scripts can be recorded",
        ),
        (
            ["--out", "notes.txt", "--nproc-per-node", "1", "gpt"],
            "cannot use notes.txt as run directory: File exists; name another with --out",
        ),
        (
            ["--json", "notes.txt", "--nproc-per-node", "1", "gpt"],
            "notes.txt exists; pass --force to replace it, or name another file",
        ),
        (
            ["--json", "new", "--out", "new", "--nproc-per-node", "1", "gpt"],
            "new is named twice, and one would replace the other; name another file",
        ),
        *(
            (
                ["--nproc-per-node", number, "gpt"],
                f"--nproc-per-node {number} starts no process; give 1 or more, or leave it out",
            )
            for number in ("0", "-1")
        ),
        *(
            (
                ["--nproc-per-node", "1", "--nnodes", nodes, "gpt"],
                f"--nnodes {nodes} is no number of nodes; give 1 or more, or a range such as 1:4",
            )
            for nodes in ("0", "two", "2:1", "1:")
        ),
        (
            ["--nproc-per-node", "2", "--fabric", "fast", "gpt"],
            "--fabric 'fast' is no rate; write a number and a unit as tc does, such as 600mbit or 1gbit",
        ),
        (
            ["--keep-traces", "gpt"],
            "--keep-traces goes with --gather; without it the traces are kept in any case",
        ),
        (
            ["--tolerance", "5%", "gpt"],
            "--tolerance is how much worse than --baseline may be; name one, or leave it out",
        ),
    ],
)
def test_it_is_refused_in_one_line(
    arguments: list[str],
    line: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("notes.txt").touch()
    assert main(["run", *arguments]) == 2
    assert capsys.readouterr() == ("", f"stepscope: error: {line}\n")
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


@pytest.mark.parametrize(
    "option",
    [
        *(
            ["--warmup", str(DEFAULT_WARMUP)],
            ["--warmup", "7"],
            ["--steps", str(DEFAULT_STEPS)],
            ["--steps", "7"],
        ),
        *(["--with-stack"], ["--stop"], ["--gather"], ["--keep-traces"], ["--noise-scale"], ["--json", "-"]),
        *(["--fail-on", "comm-bound"], ["--baseline", "x"], ["--tolerance", "5%"], ["--annotate", "auto"]),
    ],
    ids=" ".join,
)
def test_no_option_of_a_recording_goes_with_monitor_its_defaults_value_included(
    option: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", *option, "--monitor", "10", "gpt", "--steps", "3"]) == 2
    assert capsys.readouterr().err == (
        f"stepscope: error: {option[0]} does not go with --monitor, which makes no recording; leave one out\n"
    )


def test_without_a_script_it_says_what_is_required(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "--nproc-per-node", "2"]) == 2
    assert "nothing to record: name a SCRIPT, -m MODULE or a WORKLOAD" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [["--help"], ["-h"], []])
def test_help_needs_no_torch_and_ends_with_what_our_options_are(arguments: list[str]) -> None:
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_TORCH, "run", *arguments], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0 if arguments else 2, "")
    assert done.stdout.startswith(
        "Record a training script under torchrun, without an edit to it, and audit it.\n"
    )
    assert "All torchrun flags pass through" in done.stdout
    assert "stepscope run --nproc-per-node 2 --steps 5 train.py --batch-size 8" in done.stdout
    for option in ("--out", "--warmup", "--steps", "--with-stack", "--stop", "--json", "--force"):
        assert f"\n  {option}" in done.stdout


def test_a_scripts_own_help_is_printed_once_and_nothing_is_recorded(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    script, run = tmp_path / "train.py", tmp_path / "run"
    script.write_text("import argparse\nargparse.ArgumentParser(prog='mine').parse_args()\n", "utf-8")
    for asked in ("--help", "-h"):
        assert main(["run", "--nproc-per-node", "2", "--out", str(run), str(script), asked]) == 0
        assert capfd.readouterr().out.count("usage: mine [-h]") == 1
    script.write_text("raise SystemExit(3)\n", "utf-8")
    assert main(["run", "--out", str(run), str(script), "--help"]) == 2
    assert "ended with exit code 3 when it was asked for its help" in capfd.readouterr().err
    assert not run.exists()


def test_recording_needs_torch_and_says_how_to_get_it() -> None:
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_TORCH, "run", "gpt"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "stepscope: error: torch is not installed; pip install 'stepscope[record]'\n"
