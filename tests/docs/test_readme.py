"""Every command in the README does what the README says."""

from __future__ import annotations

import json
import re
import shutil
import tomllib
from itertools import pairwise
from pathlib import Path

import pytest
from rich.cells import cell_len

from documented import LESS, blocks, shell, with_less

REPOSITORY = Path(__file__).resolve().parents[2]
README = (REPOSITORY / "README.md").read_text("utf-8")
COMMANDS = "".join(blocks(README, "sh")).splitlines()
OUTPUTS = dict(re.findall(r"^<!-- output of: (.*?) -->\n```text\n(.*?)^```", README, re.M | re.S))
SET_UP = ("git clone ", "pip install ")
AUDITS = [line for line in COMMANDS if line.startswith("stepscope audit ") and " runs/" not in line]
RUNS = [line for line in COMMANDS if line.startswith("stepscope run ")]
MODELS = [line for line in COMMANDS if line.startswith(("stepscope calibrate ", "stepscope cost "))]
OF_THE_DEMO = [
    line for line in COMMANDS if line.startswith(("stepscope audit runs/", "stepscope predict runs/"))
]
SWEEPS = [line for line in COMMANDS if line.startswith("stepscope sweep ")]


@pytest.fixture(scope="module")
def folder(recorded: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The demo's, for commands that leave something beside it."""
    return shutil.copytree(recorded, tmp_path_factory.mktemp("demo"), dirs_exist_ok=True)


def test_every_command_is_one_of_those_that_run_below() -> None:
    known = {"make demo", *AUDITS, *RUNS, *MODELS, *OF_THE_DEMO, *SWEEPS}
    assert [line for line in COMMANDS if line not in known and not line.startswith(SET_UP)] == []
    assert COMMANDS[1] == "make demo"


def test_what_is_run_with_less_is_still_shown() -> None:
    assert [shown for shown in LESS if not any(shown in line for line in COMMANDS)] == []


def test_the_extras_that_it_installs_exist() -> None:
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text("utf-8"))["project"]
    named = set(re.findall(r"pip install '\.\[(.*?)\]'", README))
    assert named and named <= set(project["optional-dependencies"])


def test_the_files_that_it_points_to_exist() -> None:
    targets = re.findall(r"\]\(([^)#]+)\)", README)
    assert [target for target in targets if not (REPOSITORY / target).exists()] == []


@pytest.mark.parametrize("command", OUTPUTS)
def test_the_outputs_that_it_shows_fit_80_columns_and_start_with_a_verdict(command: str) -> None:
    assert command in COMMANDS
    lines = OUTPUTS[command].splitlines()
    assert max(map(cell_len, lines)) <= 80
    if command in OF_THE_DEMO:
        assert "Predicted (ms)" in lines
        return
    assert re.match(r"(comm-bound|comm-sensitive|compute-bound|inconclusive) \(", lines[0])
    step = "A step's gradients" if command in MODELS else "One step: rank 0, step "
    assert any(line.startswith(step) for line in lines)


def test_a_sweep_that_it_shows_is_one_that_the_guide_s_test_runs() -> None:
    guide = (REPOSITORY / "docs/bucket-sizes.md").read_text("utf-8")
    assert set(SWEEPS) <= set("".join(blocks(guide, "sh")).splitlines())


@pytest.mark.slow
def test_the_demo_records_two_ranks_and_prints_what_the_readme_shows(recorded: Path) -> None:
    text = (recorded / "stdout.txt").read_text("utf-8")
    assert "2 of 2 ranks, gloo on cpu" in text
    lines = OUTPUTS["make demo"].splitlines()
    titles = [line for line, below in pairwise(lines) if line[:1].isupper() and below.startswith("  ")]
    shown = [line.split(" (")[0].split(":")[0] for line in titles]
    assert "Next" in shown
    # a bucket size is recommended only where one is worth it
    assert {title for title in shown if f"\n{title}" not in f"\n{text}"} <= {"Bucket size"}
    audit = json.loads((recorded / "runs/demo/audit.json").read_text("utf-8"))
    assert audit["verdict"]["label"] in text
    assert audit["verdict"]["overlap_backward"] > 0
    assert len(audit["buckets"]) > 1


@pytest.mark.slow
@pytest.mark.parametrize("command", OF_THE_DEMO)
def test_what_is_made_of_the_demo(command: str, folder: Path) -> None:
    done = shell(command, folder)
    assert done.returncode == 0, done.stderr
    if "--report html" in command:
        assert (folder / "report.html").read_text("utf-8").startswith("<!doctype html>")
    else:
        assert "\nPredicted (ms)\n" in done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("command", AUDITS)
def test_an_audit_of_existing_traces(command: str, recorded: Path, tmp_path: Path) -> None:
    traces = tmp_path / "traces"
    traces.mkdir()
    for trace in (recorded / "runs/demo").glob("*.json.gz"):
        shutil.copy(trace, traces)
    done = shell(command, tmp_path)
    label = json.loads((recorded / "runs/demo/audit.json").read_text("utf-8"))["verdict"]["label"]
    gated = "--fail-on" in command and label in command
    assert done.returncode == (1 if gated else 0), done.stderr
    assert done.stdout.startswith(f"{label} (")
    if "--json audit.json" in command:
        assert json.loads((tmp_path / "audit.json").read_text("utf-8"))["schema"] == "stepscope.audit/1"
        assert done.stdout.endswith("\nWrote audit.json\n")


@pytest.mark.slow
@pytest.mark.parametrize("command", RUNS)
def test_a_recorded_run(command: str, tmp_path: Path) -> None:
    shutil.copy(REPOSITORY / "tests/data/scripts/ddp.py", tmp_path / "train.py")
    done = shell(with_less(command), tmp_path)
    assert done.returncode == 0, done.stderr
    (kept,) = tmp_path.glob("stepscope-run-*/audit.json")
    audit = json.loads(kept.read_text("utf-8"))
    assert [rank["rank"] for rank in audit["ranks"]] == [0, 1]
    if "--bucket-cap-mb 1000" in command:
        assert [bucket["bucket"] for bucket in audit["buckets"]] == [0]
        assert audit["verdict"]["overlap_backward"] < 0.05


@pytest.mark.slow
def test_a_calibration_and_the_model_beside_the_demo(folder: Path) -> None:
    """Without its audit.json the run is audited again, to the same figures."""
    *before, cost = MODELS
    for command in before:
        done = shell(with_less(command), folder)
        assert done.returncode == 0, done.stderr
    done = shell(f"{cost} --json budget.json", folder)
    assert done.returncode == 0, done.stderr
    audit = json.loads((folder / "runs/demo/audit.json").read_text("utf-8"))
    comparison = json.loads((folder / "budget.json").read_text("utf-8"))["comparison"]
    # on a busy machine what is said first is that the calibration is not usable
    assert f"\n{audit['verdict']['label']} (" in f"\n{done.stdout}"
    assert comparison["label"] == audit["verdict"]["label"]
    reduced = sum(row["count"] * row["size_bytes"] for row in comparison["sizes"])
    assert reduced == sum(bucket["bytes"] for bucket in audit["buckets"])
    assert all(row["model_ms"] > 0 and not row["waiting_included"] for row in comparison["sizes"])
    titles = [line for line in OUTPUTS[cost].splitlines() if line.endswith("gradients") or "beside m" in line]
    assert len(titles) == 2
    assert [title for title in titles if f"\n{title}\n" not in done.stdout] == []
    (folder / "runs/demo/audit.json").unlink()
    assert shell(f"{cost} --json again.json", folder).returncode == 0
    assert json.loads((folder / "again.json").read_text("utf-8"))["comparison"] == comparison
