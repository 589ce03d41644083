"""The training workload on real gloo ranks: what each flag does to losses, gradients and collectives.

Every case trains the same four steps on the same sixteen sequences a step. Its collectives, counted by the
profiler on rank 0, include one all-reduce a printed loss, hence four.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import stepscope_workloads

pytestmark = pytest.mark.slow

PROBE = Path(__file__).resolve().parents[1] / "workload_probe.py"
TRAIN = Path(stepscope_workloads.__file__).with_name("train.py")
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
STEPS, LAYERS, PARAMETERS = 4, 2, 28  # tensors that are trained, of the tiny model
TINY = f"--layers {LAYERS} --heads 2 --embed 32 --block-size 16 --steps {STEPS} --log-every 1"
COMPILER = shutil.which(os.environ.get("CXX", "g++"))
WHOLE, HALVES, ALONE = "--batch-size 8", "--batch-size 4 --accumulate 2", "--batch-size 16"

SAME_LOSSES = {
    "accumulate": HALVES,
    "zero 1": f"--zero 1 {WHOLE}",
    "zero 2": f"--zero 2 {WHOLE}",
    "zero 3": f"--zero 3 {WHOLE}",
    "zero 1, accumulate": f"--zero 1 {HALVES}",
    "zero 2, accumulate": f"--zero 2 {HALVES}",
    "zero 3, accumulate": f"--zero 3 {HALVES}",
    "small buckets": f"--bucket-cap-mb 0.02 {WHOLE}",
    "small buckets, accumulate": f"--bucket-cap-mb 0.02 {HALVES}",
    "static graph": f"--static-graph {WHOLE}",
    "find unused": f"--find-unused-parameters --gradient-as-bucket-view {WHOLE}",
    "checkpointing": f"--activation-checkpointing {WHOLE}",
    "checkpointing, zero 3": f"--activation-checkpointing --zero 3 {HALVES}",
}
OTHER_LOSSES = {
    "clip": f"--clip-grad-norm 0.1 {WHOLE}",
    "clip, zero 3": f"--clip-grad-norm 0.1 --zero 3 {WHOLE}",
    "bfloat16": f"--dtype bfloat16 {WHOLE}",
    "bfloat16, zero 3": f"--dtype bfloat16 --zero 3 {WHOLE}",
}

Seen = dict[str, dict[str, Any]]


def run(command: list[str], seconds: int, **environment: str) -> str:
    """Return what the command printed on stdout; fail with its stderr."""
    done = subprocess.run(
        command,
        env={**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "", **environment},
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def probe(launcher: list[str], out: Path, cases: dict[str, str]) -> Seen:
    run(
        [*launcher, str(PROBE), str(out), *(f"{name}={TINY} {flags}" for name, flags in cases.items())],
        seconds=120,
    )
    seen: Seen = json.loads(out.read_text())
    return seen


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> Seen:
    """What two ranks did in every case."""
    out = tmp_path_factory.mktemp("two") / "seen.json"
    return probe(TORCHRUN, out, {"plain": WHOLE, **SAME_LOSSES, **OTHER_LOSSES})


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Seen:
    """What one process did without torchrun."""
    out = tmp_path_factory.mktemp("one") / "seen.json"
    return probe(
        [sys.executable], out, {"plain": ALONE} | ({"compiled": f"--compile {ALONE}"} if COMPILER else {})
    )


@pytest.fixture(scope="module")
def losses(seen: Seen) -> list[float]:
    """The losses of plain DDP, to which the others are held."""
    plain: list[float] = seen["plain"]["losses"]
    assert len(plain) == STEPS
    assert plain == sorted(plain, reverse=True)
    return plain


@pytest.mark.parametrize("case", SAME_LOSSES)
def test_the_division_of_a_global_batch_leaves_losses_and_gradients_as_they_are(
    case: str, seen: Seen, losses: list[float]
) -> None:
    assert seen[case]["losses"] == pytest.approx(losses, rel=1e-4)
    # AdamW hides a gradient that is wrong by a factor, its norm does not. ZeroRedundancyOptimizer steps twice:
    # itself with all gradients, then the optimizer inside it with this rank's share.
    norms = seen[case]["norms"][:: 2 if case.startswith("zero 1") else 1]
    assert norms == pytest.approx(seen["plain"]["norms"], rel=1e-3)


def test_one_process_without_torchrun_trains_to_the_same_losses(alone: Seen, losses: list[float]) -> None:
    assert alone["plain"]["losses"] == pytest.approx(losses, rel=1e-4)


@pytest.mark.skipif(not COMPILER, reason="torch.compile needs a C++ compiler")
def test_compile_runs_compiled_graphs_to_the_same_losses(alone: Seen, losses: list[float]) -> None:
    assert alone["compiled"]["compiled_graphs"] > 0 == alone["plain"]["compiled_graphs"]
    assert alone["compiled"]["losses"] == pytest.approx(losses, rel=1e-4)


def test_the_bucket_cap_gives_the_number_of_buckets_that_ddp_reports(seen: Seen) -> None:
    def buckets(case: str) -> list[int]:
        return [int(size) for size in seen[case]["ddp"]["rebuilt_bucket_sizes"].split(",")]

    whole = buckets("plain")
    assert len(whole) == 1
    assert len(buckets("small buckets")) == 4
    assert sum(buckets("small buckets")) == sum(whole)
    # The first step has one bucket; from the second on DDP has rebuilt them in the order gradients get ready.
    assert seen["small buckets"]["collectives"]["allreduce"] == 1 + 3 * 4 + STEPS


def test_accumulation_reduces_once_a_step(seen: Seen) -> None:
    assert seen["accumulate"]["collectives"] == seen["plain"]["collectives"]
    assert seen["small buckets, accumulate"]["collectives"] == seen["small buckets"]["collectives"]
    for zero in ("zero 2", "zero 3"):
        scatters = {seen[case]["collectives"]["reducescatter"] for case in (zero, f"{zero}, accumulate")}
        assert scatters == {STEPS * (LAYERS + 1)}  # the blocks and the rest


def test_zero_1_broadcasts_each_parameter_after_the_update(seen: Seen) -> None:
    broadcasts = {case: seen[case]["collectives"]["broadcast"] for case in ("plain", "zero 1")}
    assert broadcasts["zero 1"] - broadcasts["plain"] == STEPS * PARAMETERS


def test_zero_3_gathers_the_blocks_again_in_backward_and_zero_2_does_not(seen: Seen) -> None:
    assert seen["zero 2"]["collectives"]["allgather"] == STEPS * (LAYERS + 1)
    assert seen["zero 3"]["collectives"]["allgather"] == STEPS * (2 * LAYERS + 1)


def test_ddp_is_given_its_flags(seen: Seen) -> None:
    names = ("static_graph", "find_unused_parameters", "gradient_as_bucket_view")
    given = {
        case: tuple(int(seen[case]["ddp"].get(name) or 0) for name in names)
        for case in seen
        if seen[case]["ddp"]
    }
    assert given["plain"] == (0, 0, 0)
    assert given["static graph"] == (1, 0, 0)
    assert given["find unused"] == (0, 1, 1)


def test_activation_checkpointing_runs_a_block_twice_a_micro_batch(seen: Seen) -> None:
    assert len(seen["plain"]["outputs"]) == STEPS
    assert len(seen["checkpointing"]["outputs"]) == 2 * STEPS
    assert len(seen["checkpointing, zero 3"]["outputs"]) == 2 * 2 * STEPS


@pytest.mark.parametrize("case", ["clip", "clip, zero 3"])
def test_clipping_holds_the_norm_of_the_whole_gradient(case: str, seen: Seen) -> None:
    assert min(seen["plain"]["norms"]) > 1
    assert seen[case]["norms"] == pytest.approx([0.1] * STEPS, rel=1e-4)


@pytest.mark.parametrize("case", ["bfloat16", "bfloat16, zero 3"])
def test_bfloat16_is_what_a_block_computes_in(case: str, seen: Seen, losses: list[float]) -> None:
    assert set(seen[case]["outputs"]) == {"torch.bfloat16"}
    assert set(seen["plain"]["outputs"]) == {"torch.float32"}
    assert seen[case]["losses"] == pytest.approx(losses, rel=1e-3)


def test_the_default_run_started_as_a_file_learns_and_prints_two_lines() -> None:
    """No log line falls between the first step and the last, so nothing but gradients is reduced there."""
    head, first, last = run([*TORCHRUN, str(TRAIN)], seconds=120).splitlines()
    assert head == "10.8 M parameters, 2 rank(s), gloo on cpu"
    matches = [re.fullmatch(r"step +(\d+)/16  loss (\d\.\d{5})  \d+ ms/step", line) for line in (first, last)]
    (step_1, loss_1), (step_16, loss_16) = [match.groups() for match in matches if match]
    assert (step_1, step_16) == ("1", "16")
    assert float(loss_1) == pytest.approx(5.64, abs=0.1)
    assert float(loss_16) < 3.2
