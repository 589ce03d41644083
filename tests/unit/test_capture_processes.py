"""What becomes of a recording when its process forks or is ended: the real signals and forks, in processes of their own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from recordings import SCRIPTS, trace_files
from stepscope.capture import config as capture_config
from stepscope.capture.config import CaptureConfig
from stepscope.capture.merge import rank_files
from stepscope.capture.metadata import load_run

LOOP = """
import os, signal, sys, torch, stepscope
weight = torch.nn.Parameter(torch.ones(4))
optimizer = torch.optim.SGD([weight], lr=0.5)
def step():
    weight.sum().backward()
    optimizer.step()
    optimizer.zero_grad()
"""


def python(code: str, *arguments: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_forked_children_of_a_rank_end_as_they_do_unrecorded_and_leave_the_recording_alone(
    tmp_path: Path,
) -> None:
    config = CaptureConfig(run_dir=str(tmp_path), warmup=2, steps=3)
    done = python(
        "from stepscope.capture.rank import main; main()",
        SCRIPTS / "forks.py",
        **{capture_config.VARIABLE: config.encoded()},
    )
    assert (done.stdout, done.stderr, done.returncode) == ("7 5 -15\n", "", 0)
    (rank,) = rank_files(tmp_path)
    (file,) = trace_files(tmp_path)
    assert (rank.trace, rank.recorded_steps, rank.problem, rank.error) == (file.name, [2, 3, 4], None, None)


def test_a_forked_child_that_leaves_the_block_writes_no_run(tmp_path: Path) -> None:
    code = f"""{LOOP}
with stepscope.record(sys.argv[1], warmup=2, steps=2):
    for number in range(9):
        if number == 3:
            child = os.fork()
            if child == 0:
                sys.exit(5)
            code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            print(code, sorted(name for name in os.listdir(sys.argv[1])))
        step()
"""
    done = python(code, tmp_path)
    assert (done.stdout, done.returncode) == ("5 ['rank0.meta.json']\n", 0), done.stderr
    run = load_run(tmp_path)
    assert [(rank.rank, rank.status, rank.recorded_steps) for rank in run.ranks] == [(0, "ended", [2, 3])]
    assert len(trace_files(tmp_path)) == 1


@pytest.mark.parametrize(("method", "kept"), [("start_trace", 0), ("stop_trace", 1)])
def test_a_rank_that_is_ended_while_its_profiler_is_switched_dies_of_that_signal(
    tmp_path: Path, method: str, kept: int
) -> None:
    """The signal comes when torch's own call has returned and ours has not: where the recorder has yet to note it."""
    code = f"""{LOOP}
from torch.profiler import profile
switch = profile.{method}
def switch_and_be_ended(self):
    switch(self)
    os.kill(os.getpid(), signal.SIGTERM)
profile.{method} = switch_and_be_ended
with stepscope.record(sys.argv[1], warmup=2, steps=2):
    for _ in range(9):
        step()
print("survived")
"""
    done = python(code, tmp_path)
    assert (done.stdout, done.stderr, done.returncode) == ("", "", -signal.SIGTERM)
    (rank,) = rank_files(tmp_path)
    assert (rank.state, rank.error) == ("ended", "ended by SIGTERM")
    assert len(trace_files(tmp_path)) == kept


def test_a_rank_that_cannot_save_its_recording_dies_of_the_signal_all_the_same() -> None:
    code = """
import os, signal
from stepscope.capture.termination import TerminationGuard
def save(_why):
    raise ValueError("nothing can be saved")
TerminationGuard(save).recording(True)
try:
    os.kill(os.getpid(), signal.SIGTERM)
except ValueError:
    pass
print("survived")
"""
    done = python(code)
    assert (done.stdout, done.returncode) == ("", -signal.SIGTERM)


def test_a_forked_child_that_leaves_does_not_end_the_monitor_of_its_parent(tmp_path: Path) -> None:
    code = f"""{LOOP}
stepscope.monitor(every=4, out=sys.argv[1])
for number in range(12):
    if number == 7:
        child = os.fork()
        if child == 0:
            sys.exit(5)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
    step()
"""
    done = python(code, tmp_path)
    assert (done.stdout, done.returncode) == ("5\n", 0)
    said = [line for line in done.stderr.splitlines() if "monitored" in line]
    assert len(said) == 1
    assert said[0].startswith("stepscope: monitored 2 steps of 12: ")
