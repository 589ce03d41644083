"""A package of somebody else's that adds a report, a cause and a workload, built and installed beside the wheel."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from packaged import REPOSITORY, Environment, build

pytestmark = pytest.mark.slow

DATA = REPOSITORY / "tests" / "data"
DDP = tuple(str(DATA / "traces" / f"ddp_rank{rank}.pt.trace.json.gz") for rank in (0, 1))

ZERO = tuple(str(DATA / "traces" / f"deepspeed_zero1_rank{rank}.pt.trace.json.gz") for rank in (0, 1))
"""What is sent there takes more of the step than 1 %."""


@pytest.fixture(scope="module")
def extended(
    environment: Callable[[str], Environment], tmp_path_factory: pytest.TempPathFactory
) -> Environment:
    """What `pip install 'stepscope[record]' overlap-example` makes."""
    source = shutil.copytree(DATA / "plugin", tmp_path_factory.mktemp("plugin") / "source")
    one = environment("[record]")
    one.install("--no-deps", "--no-index", build(source, tmp_path_factory.mktemp("plugin")).wheel)
    return one


def test_its_report_and_its_cause_are_part_of_an_audit(extended: Environment, tmp_path: Path) -> None:
    done = extended.run("stepscope", "audit", *DDP, "--report", "csv", "--json", "audit.json", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "Wrote audit.json\n")
    assert done.stdout == (
        "rank,step,kind,role,bytes,duration_ms,exposed_ms\n"
        "0,7,all_reduce,gradient,37408,2.73219,2.73219\n"
        "1,7,all_reduce,gradient,37408,0.494344,0.494344\n"
    )
    done = extended.run("stepscope", "audit", *ZERO, "--json", "-", cwd=tmp_path)
    assert "float32-gradients" in [one["cause"] for one in json.loads(done.stdout)["findings"]]


def test_its_workload_is_recorded_by_name(extended: Environment, tmp_path: Path) -> None:
    done = extended.run("stepscope", "run", "--nproc-per-node", "2", "--out", "run", "tiny", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    made = json.loads((tmp_path / "run" / "audit.json").read_text("utf-8"))
    assert [len(rank["steps"]) for rank in made["ranks"]] == [3, 3]
    assert {c["bytes"] for c in made["collectives"] if c["gradient"]} == {4 * (64 * 64 + 64)}
