"""Faults on real gloo ranks: training learns the same, the collectives are the broken ones, and the audit names them."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from recordings import run
from stepscope_workloads.broken import FAULTS, Straggler
from stepscope_workloads.faults import argument_parser, read_fault, read_flags

PROBE = Path(__file__).resolve().parents[1] / "fault_probe.py"
STEPS, PARAMETERS = 4, 28  # tensors that are trained, of the tiny model
TINY = f"--layers 2 --heads 2 --embed 32 --block-size 16 --steps {STEPS} --log-every 1 --batch-size 4"

ONLY_OVERLAP = {
    "one-bucket": "",
    "tiny-buckets:mb=0.001": "",
    "find-unused": "",
    "sync-every-micro-batch": "--accumulate 2",
    "reduce-by-hand": "",
    "waiting-hook": "",
    "straggler:ms=1,phase=forward": "",
    "straggler:ms=1,phase=backward": "",
    "straggler:ms=1,phase=input": "",
    "metrics:count=3": "",
    "metrics:count=3,within=true": "",
    "buffers:mb=0.1": "",
    "zero-1": "",
}
"""Faults that change when something is sent, and not what is learnt; with flags that they need."""
OTHERS = {"clip-before-reduce": "", "late-parameter": "", "large-embedding:mb=0.1": ""}

Seen = dict[str, dict[str, Any]]


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> Seen:
    """Every fault on two ranks, from one start of them; all of them on the same batches."""
    out = tmp_path_factory.mktemp("faults") / "seen.json"
    cases = {
        "none": "--fault none",
        "none, accumulate": "--fault none --accumulate 2",
        "two at once": "--fault reduce-by-hand --fault metrics:count=3",
        **{fault: f"--fault {fault} {flags}" for fault, flags in (ONLY_OVERLAP | OTHERS).items()},
    }
    done = subprocess.run(
        [
            *(
                sys.executable,
                "-m",
                "torch.distributed.run",
                "--standalone",
                "--nproc-per-node",
                "2",
                str(PROBE),
            ),
            *(str(out), *(f"{name}::{TINY} {flags}" for name, flags in cases.items())),
        ],
        env={**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""},
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    result: Seen = json.loads(out.read_text())
    return result


@pytest.mark.slow
@pytest.mark.parametrize("fault", ONLY_OVERLAP)
def test_a_fault_of_overlap_changes_nothing_of_what_is_learnt(seen: Seen, fault: str) -> None:
    clean = seen["none, accumulate" if "--accumulate" in ONLY_OVERLAP[fault] else "none"]
    assert seen[fault]["losses"] == pytest.approx(clean["losses"], abs=1e-4)
    assert len(clean["losses"]) == STEPS


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fault", "more"),
    [
        ("reduce-by-hand", STEPS * (PARAMETERS - 1)),  # one a parameter instead of one in all
        ("clip-before-reduce", STEPS),  # the norm's
        ("metrics:count=3", STEPS * 3),
        ("metrics:count=3,within=true", STEPS * 2 * 3),  # after each of two blocks
        ("find-unused", STEPS),  # the map of used parameters
        ("two at once", STEPS * (PARAMETERS - 1 + 3)),
    ],
)
def test_a_fault_adds_the_all_reduces_that_it_says(seen: Seen, fault: str, more: int) -> None:
    assert seen[fault]["collectives"]["allreduce"] - seen["none"]["collectives"]["allreduce"] == more


@pytest.mark.slow
def test_without_no_sync_each_micro_batch_reduces(seen: Seen) -> None:
    once, always = seen["none, accumulate"]["collectives"], seen["sync-every-micro-batch"]["collectives"]
    assert always["allreduce"] - once["allreduce"] == STEPS  # of one bucket each


@pytest.mark.slow
def test_buffers_and_zero_1_broadcast_in_every_step(seen: Seen) -> None:
    clean = seen["none"]["collectives"].get("broadcast", 0)
    assert seen["buffers:mb=0.1"]["collectives"]["broadcast"] - clean >= STEPS
    assert seen["zero-1"]["collectives"]["broadcast"] - clean >= STEPS * PARAMETERS


@pytest.mark.measures
@pytest.mark.slow
def test_a_busy_wait_of_200_ms_and_what_comes_with_it_are_named_by_the_audit(tmp_path: Path) -> None:
    """Rank, phase and size within a tenth; the other fault's cause stands beside it."""
    out = tmp_path / "run"
    finished = run(
        *("--nproc-per-node", "2", "--warmup", "3", "--steps", "4", "--stop", "--out", out, "gpt-faults"),
        *("--fault", "straggler:rank=1,ms=200", "--fault", "zero-1", "--preset", "1m", "--steps", "12"),
    )
    assert finished.code == 0, finished.stderr
    findings = json.loads((out / "audit.json").read_text())["findings"]
    assert [findings[0]["cause"], findings[0]["ranks"]] == ["straggler", [1]]
    size = re.match(r"rank 1 takes ([\d.]+) ms longer in backward", findings[0]["evidence"][0])
    assert size is not None
    assert float(size[1]) == pytest.approx(200, rel=0.1)
    assert "zero1-parameter-broadcast" in {finding["cause"] for finding in findings}


@pytest.mark.measures
@pytest.mark.slow
def test_one_of_four_ranks_that_loses_200_ms_in_forward_is_named_with_phase_and_size(tmp_path: Path) -> None:
    out = tmp_path / "run"
    finished = run(
        *("--nproc-per-node", "4", "--warmup", "3", "--steps", "4", "--stop", "--out", out, "gpt-faults"),
        *("--fault", "straggler:rank=2,ms=200,phase=forward", "--preset", "1m", "--batch-size", "1"),
    )
    assert finished.code == 0, finished.stderr
    first = json.loads((out / "audit.json").read_text())["findings"][0]
    assert (first["cause"], first["ranks"]) == ("straggler", [2])
    size = re.match(r"rank 2 takes ([\d.]+) ms longer in forward", first["evidence"][0])
    assert size is not None
    assert float(size[1]) == pytest.approx(200, rel=0.1)


def test_a_fault_is_read_with_its_settings() -> None:
    assert read_fault("straggler:rank=2,ms=200,phase=input") == Straggler(rank=2, ms=200.0, phase="input")


def test_every_fault_is_listed_with_its_settings_and_what_it_breaks() -> None:
    text = argument_parser().format_help()
    assert all(f"  {name}" in text for name in FAULTS)
    assert "straggler:rank=1,ms=50.0,phase=backward" in text


@pytest.mark.parametrize(
    ("flags", "line"),
    [
        ("--fault slow", "argument --fault: no fault 'slow'; there are none, one-bucket,"),
        ("--fault straggler:of=2", "argument --fault: straggler has no setting 'of'; it has rank, ms, phase"),
        ("--fault straggler:ms=long", "argument --fault: ms of straggler is no number: 'long'"),
        (
            "--fault straggler:phase=update",
            "argument --fault: phase is forward, backward or input, not 'update'",
        ),
        ("--fault sync-every-micro-batch", "sync-every-micro-batch needs --accumulate 2 or more"),
        ("--fault none --zero 3", "the faults are DDP's and --zero 3 is FSDP2: use --zero 0 or 1"),
        ("", "the following arguments are required: --fault"),
    ],
)
def test_a_mistake_ends_with_one_line_that_names_the_fix(
    flags: str, line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stop:
        read_flags(flags.split())
    assert stop.value.code == 2
    assert capsys.readouterr().err.splitlines()[-1].startswith(f"gpt-faults: error: {line}")
