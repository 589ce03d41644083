"""`stepscope sweep` from outside, with real gloo ranks: candidates compared on a script that knows nothing of it."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from recordings import SCRIPTS, Finished, Started
from stepscope.capture.metadata import load_run
from stepscope.cli.main import main
from stepscope.schema.generate import SCHEMA_FILE
from stepscope.sweep.results import RESULTS_FILE

pytestmark = pytest.mark.slow

LAYER_BYTES = 4 * (256 * 256 + 256)
FLAGS = ("--bucket-cap-mb", "script,0.1,1", "--warmup", "3", "--steps", "1", "--nproc-per-node", "2")
SCRIPT = ("own_cap.py", "--dies-at", "1")
MOST_S = 120


def sweep(*arguments: str | Path) -> Finished:
    return Started(*arguments, command="sweep").finish()


def lines_of(folder: Path) -> list[dict[str, Any]]:
    file = folder / RESULTS_FILE
    return [json.loads(line) for line in file.read_text("utf-8").splitlines()] if file.exists() else []


def wait_until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + MOST_S
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.1)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("sweep") / "caps"


@pytest.fixture(scope="module")
def killed(folder: Path) -> list[dict[str, Any]]:
    """What there is of a sweep that was killed once it had finished a run."""
    started = Started("--repeat", "1", "--out", folder, *FLAGS, *SCRIPT, command="sweep")
    wait_until(lambda: len(lines_of(folder)) == 2)
    os.kill(started.process.pid, signal.SIGKILL)
    wait_until(lambda: not started.leftovers())
    started.finish()
    return lines_of(folder)


@pytest.fixture(scope="module")
def resumed(killed: list[dict[str, Any]], folder: Path) -> Finished:
    assert len(killed) == 2  # the plan and a run
    return sweep("--repeat", "1", "--out", folder, *FLAGS, *SCRIPT)


@pytest.fixture(scope="module")
def result(resumed: Finished, folder: Path) -> dict[str, Any]:
    assert resumed.code == 1, resumed.stderr
    made: dict[str, Any] = json.loads((folder / "sweep.json").read_text("utf-8"))
    return made


class TestASweepThatWasKilled:
    def test_it_goes_on_where_it_was_stopped(
        self, killed: list[dict[str, Any]], resumed: Finished, folder: Path
    ) -> None:
        lines = lines_of(folder)
        assert lines[:2] == killed
        assert len(lines) == 4
        assert {tuple(line["knobs"].values()) for line in lines[1:]} == {("script",), ("0.1",), ("1",)}
        first, second = resumed.stderr.splitlines()[:2]
        assert (
            first
            == "stepscope: 3 candidates x 1 round = 3 runs, in random order (seed 0), every second round reversed; 1 are there"
        )
        assert second.startswith("stepscope: about ")
        assert resumed.leftovers == []

    def test_ddps_own_buckets_show_that_the_cap_was_set(self, result: dict[str, Any], folder: Path) -> None:
        own, small, _ = result["rows"]
        assert (own["bucket_cap_mb"], own["buckets"]) == (0.5, 2)
        assert (small["bucket_cap_mb"], small["buckets"]) == (pytest.approx(0.1, abs=1e-5), 4)
        run = load_run(folder / small["folders"][0])
        assert run.ddp[0].rebuilt_bucket_bytes == [LAYER_BYTES] * 4
        assert run.replaced_bucket_caps_mb == [0.5]
        assert result["replaced_caps_mb"] == [0.5]

    def test_the_size_at_which_the_script_dies_says_why_and_the_rest_is_kept(
        self, result: dict[str, Any], resumed: Finished, folder: Path
    ) -> None:
        assert [row["status"] for row in result["rows"]] == ["measured", "measured", "failed"]
        message = result["rows"][2]["message"]
        assert message.startswith("rank ")
        assert "(MemoryError: no room for such buckets); no step was recorded" in message
        assert result["best"]["row"] in (0, 1)
        logs = [path.read_text("utf-8") for path in folder.glob("runs/*/log.txt")]
        assert sum("MemoryError: no room for such buckets" in log for log in logs) == 1
        assert "Traceback" not in resumed.stdout + resumed.stderr
        assert resumed.stdout.splitlines()[-1] == f"Wrote {folder}/sweep.json"

    def test_times_are_of_unrecorded_steps_and_the_rest_of_recorded_ones(
        self, result: dict[str, Any], folder: Path
    ) -> None:
        row = result["rows"][0]
        run = load_run(folder / row["folders"][0])
        kinds = {time.step: time.kind for time in run.ranks[0].step_times}
        timed = [step for step, kind in kinds.items() if kind == "unprofiled"]
        (line,) = [line for line in lines_of(folder)[1:] if line["knobs"] == row["knobs"]]
        assert len(line["step_ms"]) == len(timed) == 3
        assert row["run_step_ms"] == [pytest.approx(sorted(line["step_ms"])[1])]
        assert 0 < row["exposed_ms"] < row["recorded_step_ms"]

    def test_its_json_obeys_the_schema(self, result: dict[str, Any]) -> None:
        schema = json.loads(SCHEMA_FILE.with_name("sweep-1.json").read_text("utf-8"))
        jsonschema.Draft202012Validator(schema).validate(result)

    def test_other_flags_are_refused_in_its_directory(
        self,
        result: dict[str, Any],
        folder: Path,
        monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str],
    ) -> None:
        assert result["runs"] == 3
        monkeypatch.chdir(SCRIPTS)
        assert main(["sweep", "--repeat", "1", "--out", str(folder), *FLAGS, "--seed", "1", *SCRIPT]) == 2
        assert capsys.readouterr().err.splitlines()[-1] == (
            f"stepscope: error: {folder} holds a sweep with seed 0, not 1; repeat its flags to go on with it, name another "
            "--out, or pass --force to begin anew"
        )


def test_a_script_without_ddp_is_run_once_and_told_so(tmp_path: Path) -> None:
    folder = tmp_path / "sweep"
    done = sweep("--out", folder, *FLAGS, "own_cap.py", "--no-ddp")
    assert done.code == 2
    assert done.last_error_line == (
        "stepscope: error: Nothing could be compared: the script's own cap: the script made no DistributedDataParallel "
        "module, so the bucket cap changed nothing"
    )
    assert len(lines_of(folder)) == 2
    assert done.leftovers == []


def test_a_run_over_its_time_is_ended_and_its_candidate_failed(tmp_path: Path) -> None:
    flags = ("--env", "HANGS=1,0", "--repeat", "1", "--run-timeout", "1", "--nproc-per-node", "2")
    done = sweep("--out", tmp_path / "sweep", *flags, "own_cap.py")
    assert done.code == 2
    assert done.leftovers == []
    lines = lines_of(tmp_path / "sweep")
    assert [line["status"] for line in lines[1:]] == ["failed", "failed"]
    assert lines[1]["message"].startswith("took longer than --run-timeout 1 s; see ")


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (("--nproc-per-node", "2"), "nothing to compare on: name a SCRIPT, -m MODULE or a WORKLOAD (see "),
        (
            ("--nnodes", "2", "own_cap.py"),
            "--nnodes 2: a sweep starts all ranks on this machine; give --fabric",
        ),
        (("nothing.py",), "no script 'nothing.py', and no workload of that name; workloads: "),
        (("--calibration", "none.json", "own_cap.py"), "cannot read none.json: No such file or directory"),
    ],
)
def test_what_makes_no_sweep_is_one_line_and_exit_code_2(
    flags: tuple[str, ...],
    said: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(SCRIPTS)
    assert main(["sweep", "--bucket-cap-mb", "1,2", *flags]) == 2
    assert capsys.readouterr().err.splitlines()[-1].startswith(f"stepscope: error: {said}")
