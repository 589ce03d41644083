"""The monitor as a callback, in the loops of other packages; skipped where the package is not installed."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import msgspec
import pytest

from recordings import SCRIPTS
from stepscope.capture.monitor_log import Entry

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    ("package", "script"), [("lightning", "lightning_fit.py"), ("transformers", "hf_trainer.py")]
)
def test_a_callback_monitors_from_the_beginning_of_training_to_its_end(
    package: str, script: str, tmp_path: Path
) -> None:
    if find_spec(package) is None:
        pytest.skip(
            f"needs {package}: pip install 'stepscope[frameworks]' (minutes, beside an installed torch)"
        )
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    done = subprocess.run(
        [*launcher, str(SCRIPTS / script), "--monitor-into", str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    lines = (tmp_path / "monitor.jsonl").read_bytes().splitlines()
    found = [msgspec.json.decode(line, type=Entry) for line in lines]
    assert [(one.step, one.ranks, one.problem) for one in found] == [(5, 2, None), (10, 2, None)]
    assert "stepscope: monitored 2 steps of 14: " in done.stderr
