"""The workflow that the guide offers to be copied: its stepscope commands run as GitHub would run them."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from recordings import Finished

REPOSITORY = Path(__file__).resolve().parents[2]
PAGE = (REPOSITORY / "docs/gate.md").read_text("utf-8")


def commands() -> list[list[str]]:
    """Those of the workflow's `run:` lines that are ours, folded as YAML folds them."""
    (workflow,) = re.findall(r"```yaml\n(.*?)```", PAGE, re.S)
    folded = re.sub(
        r"run: >-\n((?: {10}.*\n)+)", lambda found: f"run: {' '.join(found[1].split())}\n", workflow
    )
    return [shlex.split(line) for line in re.findall(r"run: (stepscope .*)", folded)]


@pytest.mark.slow
def test_the_workflow_runs_and_writes_its_summary_whether_or_not_the_gate_holds(
    ddp_run: tuple[Finished, Path], tmp_path: Path
) -> None:
    shutil.copy(REPOSITORY / "tests/data/scripts/ddp.py", tmp_path / "train.py")
    summary = tmp_path / "summary.md"
    environment = {**os.environ, "GITHUB_ACTIONS": "true", "GITHUB_STEP_SUMMARY": str(summary)}

    def run(arguments: list[str]) -> subprocess.CompletedProcess[str]:
        given = [str(summary) if word == "$GITHUB_STEP_SUMMARY" else word for word in arguments]
        return subprocess.run(
            [sys.executable, "-m", *given],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )

    gated, compared = commands()
    before, base = ddp_run
    assert before.code == 0, before.stderr
    shutil.copy(base / "audit.json", tmp_path / "overlap-baseline.json")
    again = run(gated)
    assert again.returncode in (0, 1), again.stderr  # two runs of it may well differ here
    assert "baseline: cost of communication" in again.stderr
    assert "::notice title=stepscope::" in again.stderr
    assert run(compared).returncode == 0
    assert "| step |" in summary.read_text("utf-8")
