"""Monitoring real gloo ranks: by `stepscope run --monitor`, and by `stepscope.monitor` under plain torchrun."""

from __future__ import annotations

import os
import subprocess
import sys
import uuid
from pathlib import Path

import msgspec
import pytest

from recordings import MARKER, SCRIPTS, Finished, processes_with, run, trace_files
from stepscope.capture.monitor_log import Entry
from stepscope.cli.audit import audit_paths
from stepscope.cli.main import main
from stepscope.cli.stored import load_audit

pytestmark = pytest.mark.slow


def entries(folder: Path) -> list[Entry]:
    lines = (folder / "monitor.jsonl").read_bytes().splitlines()
    return [msgspec.json.decode(line, type=Entry) for line in lines]


def told(stderr: str) -> list[str]:
    """The monitor's own lines."""
    return [line for line in stderr.splitlines() if line.startswith("stepscope: ")]


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("monitor") / "out"


@pytest.fixture(scope="module")
def finished(out: Path) -> Finished:
    return run("--monitor", "10", "--nproc-per-node", "2", "--out", out, "monitored.py")


class TestAScriptThatIsRunAsItIs:
    def test_every_tenth_step_is_told_of_in_a_line(self, finished: Finished) -> None:
        assert (finished.code, finished.leftovers) == (0, []), finished.stderr
        lines = told(finished.stderr)
        assert [line.partition(":")[2].split(",")[0].split(":")[0] for line in lines[:2]] == [
            " step 10",
            " step 20",
        ]
        assert all(" ms of " in line and ("overlap " in line) for line in lines[:2])
        assert lines[2].startswith("stepscope: monitored 2 steps of 24: that took ")
        assert len(lines) == 3

    def test_the_figures_are_in_a_file_with_what_they_cost(self, finished: Finished, out: Path) -> None:
        assert finished.stdout.splitlines()[-1] == f"Wrote {out / 'monitor.jsonl'}"
        first, second = entries(out)
        assert [(one.step, one.ranks, one.problem) for one in (first, second)] == [
            (10, 2, None),
            (20, 2, None),
        ]
        assert first.figures is not None
        assert first.figures.step_ms is not None
        assert first.cost_ms is not None
        assert 0 < first.moved_bytes < first.trace_bytes / 10

    def test_the_traces_of_the_first_verdict_are_kept_and_say_the_same(
        self, finished: Finished, out: Path
    ) -> None:
        assert finished.code == 0
        first = entries(out)[0]
        assert first.kept == str(out / "step000010")
        assert [file.name for file in trace_files(out / "step000010")] == [
            "rank0.pt.trace.json.gz",
            "rank1.pt.trace.json.gz",
        ]
        made = audit_paths([str(out / "step000010")])
        kept = load_audit(out / "step000010" / "audit.json")
        assert made.verdict == kept.verdict
        assert first.figures is not None
        assert (made.verdict.label, made.verdict.step_ms) == (first.figures.verdict, first.figures.step_ms)
        assert [step.step for rank in made.ranks for step in rank.steps] == [10, 10]

    def test_only_what_another_verdict_brought_is_kept(self, finished: Finished, out: Path) -> None:
        assert finished.code == 0
        first, second = entries(out)
        assert first.figures is not None
        assert second.figures is not None
        assert (second.kept is None) == (second.figures.verdict == first.figures.verdict)


def test_a_script_under_plain_torchrun_trains_to_the_same_bits_with_a_monitor_as_without(
    tmp_path: Path,
) -> None:
    marker = uuid.uuid4().hex
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    script = [str(SCRIPTS / "monitored.py"), "--steps", "14", "--again-into", str(tmp_path)]
    done = subprocess.run(
        [*launcher, *script],
        env={**os.environ, MARKER: marker},
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    without, with_monitor = done.stdout.split()
    assert with_monitor == without
    assert [(one.step, one.problem) for one in entries(tmp_path)] == [(10, None)]
    assert told(done.stderr)[-1].startswith("stepscope: monitored 1 step of 14: ")
    assert processes_with(marker) == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--monitor", "3"], "argument --monitor: '3' is no number of steps; at least 4 are needed"),
        (["--monitor", "9", "--gather"], "--gather does not go with --monitor, which makes no recording"),
        (["--monitor", "9", "--steps", "5"], "--steps does not go with --monitor, which makes no recording"),
        (["--monitor", "9", "--noise-scale"], "--noise-scale does not go with --monitor"),
        (["--monitor", "9", "--fail-on", "comm-bound"], "--fail-on does not go with --monitor"),
    ],
)
def test_what_would_have_no_effect_is_refused(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", *arguments, "monitored.py"]) == 2
    assert message in capsys.readouterr().err.splitlines()[-1]
