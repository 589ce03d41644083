"""`stepscope.record` in ranks that nobody launched together and that no variable numbers, as under `srun`."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from recordings import SCRIPTS, leave_an_earlier_recording, read_trace, steps_in, trace_files
from stepscope.capture.metadata import load_run

pytestmark = pytest.mark.slow

NUMBERED_BY = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE")


def test_ranks_of_a_group_are_one_run_whenever_each_of_them_ends_and_whatever_was_there(
    tmp_path: Path,
) -> None:
    leave_an_earlier_recording(tmp_path / "run", written=time.time() - 1)
    environment = {name: value for name, value in os.environ.items() if name not in NUMBERED_BY}
    ranks = [
        subprocess.Popen(
            [sys.executable, SCRIPTS / "own_ranks.py", str(rank), "2", tmp_path / "store", tmp_path / "run"],
            env=environment,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in (0, 1)
    ]
    said = [rank.communicate(timeout=200)[1] for rank in ranks]
    assert [rank.returncode for rank in ranks] == [0, 0], said
    run = load_run(tmp_path / "run")
    assert (run.world_size, run.recorded_steps) == (2, [2, 3])
    assert [(rank.rank, rank.status) for rank in run.ranks] == [(0, "ended"), (1, "ended")]
    traces = trace_files(tmp_path / "run")
    assert [rank.trace for rank in run.ranks] == [file.name for file in traces]
    assert [list(steps_in(read_trace(file))) for file in traces] == [[2, 3], [2, 3]]
    assert len(list((tmp_path / "run").iterdir())) == 3
