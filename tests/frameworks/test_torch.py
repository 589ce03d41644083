"""What torch itself brings, in scripts as their authors write them, recorded without an edit."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from framework_runs import Recorded, Script, assert_recorded_as_it_is, record
from recordings import read_trace, steps_in, trace_files, within

pytestmark = pytest.mark.slow

FOUR_LAYERS = 4 * (512 * 512 + 512)
TWO_LAYERS = (64 * 128 + 128) + (128 * 8 + 8)

FSDP1 = Script(
    ("fsdp1.py",), 3 * (64 * 64 + 64) + (64 * 8 + 8), (2_080, 16_640, 16_640, 16_640), "reduce_scatter"
)
FSDP2 = Script(
    ("fsdp2.py",),
    (8 * 8 + 8) + (8 * 4 + 4),
    (144, 288),
    "reduce_scatter",
    flags=("--warmup", "2", "--steps", "2"),
    steps=(2, 3),
)
ZERO_1 = Script(
    ("zero1.py",), (8 * 8 + 8) + (8 * 4 + 4), (432,), flags=("--warmup", "4", "--steps", "2"), steps=(4, 5)
)
SCALER = Script(("grad_scaler.py",), TWO_LAYERS, (37_408,))
GAN = Script(
    ("gan.py",),
    (16 * 64 + 64) + (64 * 32 + 32) + (32 * 64 + 64) + (64 * 1 + 1),
    (8_708, 12_672),
)


@pytest.mark.parametrize(
    ("script", "units"),
    [(FSDP1, []), (FSDP2, [("0", 72, True), ("1", 36, False)])],
    ids=["FSDP1", "FSDP2"],
)
def test_each_unit_of_fsdp_is_reduced_once_a_step_and_gathered_beside_it(
    tmp_path: Path, script: Script, units: list[tuple[str, int, bool]]
) -> None:
    """Those of FSDP2 say their settings, too: elements, and whether they give parameters back after the forward pass."""
    recorded = record(script, tmp_path / "run")
    assert_recorded_as_it_is(script, recorded)
    assert recorded.others() == {("all_gather", "parameter")}
    assert [(unit.module, unit.numel, unit.reshard_after_forward) for unit in recorded.metadata.fsdp] == units


def test_zero_1_steps_an_optimizer_in_an_optimizer_once_and_accumulates(tmp_path: Path) -> None:
    recorded = record(ZERO_1, tmp_path)
    assert_recorded_as_it_is(ZERO_1, recorded)
    assert recorded.others() == {("broadcast", "parameter")}
    assert [(o.name, o.steps) for o in recorded.metadata.optimizers] == [("ZeroRedundancyOptimizer", 10)]
    for trace in map(read_trace, trace_files(tmp_path)):
        for window in steps_in(trace).values():
            assert within(trace, "DistributedDataParallel.forward", window) == 2
            assert within(trace, "Optimizer.step#ZeroRedundancyOptimizer.step", window) == 1


def test_a_step_that_the_grad_scaler_leaves_out_is_a_step(tmp_path: Path) -> None:
    recorded = record(SCALER, tmp_path / "run")
    assert_recorded_as_it_is(SCALER, recorded)
    assert recorded.metadata.skipped_by_grad_scaler == [7]
    assert [(o.name, o.is_clock) for o in recorded.metadata.optimizers] == [("AdamW", True)]


def test_two_models_with_an_optimizer_each_make_one_step_a_turn(tmp_path: Path) -> None:
    recorded = record(GAN, tmp_path / "run")
    assert_recorded_as_it_is(GAN, recorded)
    assert [(o.name, o.is_clock) for o in recorded.metadata.optimizers] == [
        ("RMSprop", False),
        ("Adam", True),
    ]
    assert sorted(module.rebuilt_bucket_bytes for module in recorded.metadata.ddp) == [[8_708], [12_672]]


@pytest.mark.parametrize(
    "script",
    [
        Script(("compiled_ddp.py",), FOUR_LAYERS, (1_050_624,) * 4),
        Script(("compiled_ddp.py", "--whole-graph"), FOUR_LAYERS, (1_050_624,) * 4),
        Script(("compiled_autograd.py",), FOUR_LAYERS, (2_048, 1_048_576, *(1_050_624,) * 3)),
    ],
    ids=["DDPOptimizer", "whole graph", "compiled autograd"],
)
def test_a_compiled_models_gradients_are_those_of_the_plain_one(tmp_path: Path, script: Script) -> None:
    assert_recorded_as_it_is(script, record(script, tmp_path / "run"))


class TestAScriptThatProfilesItself:
    """Only one profiler can be active in a process: the script's goes first, ours records when it is done."""

    script = Script(("own_profiler.py",), TWO_LAYERS, (37_408,), steps=(7, 8, 9))

    @pytest.fixture(scope="class")
    def folder(self, tmp_path_factory: pytest.TempPathFactory) -> Path:
        return tmp_path_factory.mktemp("own")

    @pytest.fixture(scope="class")
    def recorded(self, folder: Path) -> Recorded:
        script = Script((*self.script.arguments, str(folder)), TWO_LAYERS, (37_408,))
        return record(script, folder / "run")

    def test_ours_records_the_steps_after_it_and_is_not_cut_by_its_marks(self, recorded: Recorded) -> None:
        assert_recorded_as_it_is(self.script, recorded)

    def test_its_own_traces_are_what_they_are_without_us(self, recorded: Recorded, folder: Path) -> None:
        assert recorded.finished.code == 0
        for rank in (0, 1):
            own = json.loads((folder / f"rank{rank}.own.pt.trace.json").read_text())
            assert sorted(steps_in(own)) == [2, 3, 4]
