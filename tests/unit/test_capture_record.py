"""Recording in this very process through `stepscope.record`: which steps, by which optimizer, and what stands in the way."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.autograd.profiler import profile as autograd_profile
from torch.autograd.profiler import record_function
from torch.optim import optimizer as optimizer_module
from torch.profiler import ProfilerActivity, profile

import stepscope
from recordings import leave_an_earlier_recording, read_trace, steps_in, trace_files, within
from stepscope.capture.metadata import RunMetadata, load_run
from stepscope.capture.record import Recording
from stepscope.errors import InputError

STEP = "Optimizer.step#SGD.step"


class Loop:
    """A model, its optimizer, and a step."""

    def __init__(self, optimizer: type[torch.optim.Optimizer] = torch.optim.SGD) -> None:
        self.model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 1))
        self.optimizer = optimizer(self.model.parameters(), lr=1e-3)  # type: ignore[call-arg]

    def backward(self) -> None:
        self.model(torch.ones(2, 8)).sum().backward()

    def step(self) -> None:
        self.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()


def record(
    run_dir: Path, body: Callable[[Recording], object], *, warmup: int = 3, steps: int = 2
) -> RunMetadata:
    with stepscope.record(run_dir, warmup=warmup, steps=steps) as recording:
        body(recording)
    return load_run(run_dir)


def times(count: int, action: Callable[[], object]) -> None:
    for _ in range(count):
        action()


def test_the_steps_after_the_warm_up_are_recorded_under_the_scripts_own_numbers(tmp_path: Path) -> None:
    run = record(tmp_path, lambda _: times(12, Loop().step), warmup=4, steps=3)
    (file,) = trace_files(tmp_path)
    trace = read_trace(file)
    assert list(steps_in(trace)) == run.recorded_steps == [4, 5, 6]
    for window in steps_in(trace).values():
        assert within(trace, STEP, window) == 1
        assert within(trace, "autograd::engine::evaluate_function: AddmmBackward0", window) == 2
    assert trace["distributedInfo"] == {"backend": "none", "rank": 0, "world_size": 1}
    assert {time.step: time.kind for time in run.ranks[0].step_times} == {
        1: "start-up",
        2: "unprofiled",
        3: "profiler-warm-up",
        **dict.fromkeys((4, 5, 6), "recorded"),
        7: "after-export",
        **dict.fromkeys((8, 9, 10), "unprofiled"),
    }


def test_it_leaves_torch_as_it_found_it(tmp_path: Path) -> None:
    def touched() -> list[object]:
        return [
            record_function.__enter__,
            record_function.__exit__,
            autograd_profile._prepare_trace,
            autograd_profile.__exit__,
            torch.amp.GradScaler.step,
            torch.autograd.backward,
            nn.parallel.DistributedDataParallel.__init__,
            dict(optimizer_module._global_optimizer_pre_hooks),
            dict(optimizer_module._global_optimizer_post_hooks),
        ]

    before = touched()
    record(tmp_path, lambda _: times(12, Loop().step))
    assert touched() == before


def test_off_it_does_nothing(tmp_path: Path) -> None:
    with stepscope.record(tmp_path / "never", enabled=False) as recording:
        recording.step()
    assert not (tmp_path / "never").exists()


def test_an_impossible_schedule_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot record 0 steps after 3: both must be at least 1"):
        record(tmp_path, lambda _: None, steps=0)


def test_a_recording_inside_a_recording_is_the_outer_one(tmp_path: Path) -> None:
    def body(_: Recording) -> None:
        with stepscope.record(tmp_path / "inner"):
            times(9, Loop().step)

    assert record(tmp_path / "outer", body).recorded_steps == [3, 4]
    assert not (tmp_path / "inner").exists()


def test_steps_told_by_hand_go_before_the_optimizers(tmp_path: Path) -> None:
    loop = Loop()

    def body(recording: Recording) -> None:
        for _ in range(9):
            loop.step()
            loop.step()
            recording.step()

    run = record(tmp_path, body)
    trace = read_trace(trace_files(tmp_path)[0])
    assert [within(trace, STEP, window) for window in steps_in(trace).values()] == [2, 2]
    assert [(optimizer.name, optimizer.is_clock) for optimizer in run.optimizers] == [("by hand", True)]


def test_without_an_optimizer_step_it_says_how_to_mark_steps(tmp_path: Path) -> None:
    run = record(tmp_path, lambda _: times(3, Loop().backward))
    assert (
        run.ranks[0].problem
        == "the script made no optimizer step; mark its steps by hand with `stepscope.record` (see its help)"
    )
    assert run.recorded_steps == []
    assert trace_files(tmp_path) == []


@pytest.mark.parametrize(
    ("made", "advice"),
    [(1, "let it make more"), (2, "or pass --warmup 1 --steps 1"), (3, "or pass --warmup 2 --steps 1")],
)
def test_too_few_steps_are_counted_and_a_schedule_that_fits_is_named(
    tmp_path: Path, made: int, advice: str
) -> None:
    problem = record(tmp_path, lambda _: times(made, Loop().step)).ranks[0].problem
    assert problem is not None
    assert problem.startswith(f"the script made only {made} of the 5 steps needed; let it make more")
    assert problem.endswith(advice)


def test_steps_of_an_optimizer_that_is_made_anew_are_not_said_to_be_all(tmp_path: Path) -> None:
    def body(_: Recording) -> None:
        for _phase in range(3):
            times(4, Loop().step)

    assert record(tmp_path, body, warmup=6, steps=3).ranks[0].problem == (
        "the script made only 4 of the 9 steps needed with one optimizer; let it make more, or pass --warmup 3 --steps 1, "
        "or mark the steps of all optimizers with `rec.step()`, see help(stepscope.record)"
    )


def test_a_loop_that_ends_while_recording_keeps_its_whole_steps_alone(tmp_path: Path) -> None:
    loop = Loop()

    def body(_: Recording) -> None:
        times(5, loop.step)
        loop.backward()

    run = record(tmp_path, body, steps=9)
    trace = read_trace(trace_files(tmp_path)[0])
    assert list(steps_in(trace)) == run.recorded_steps == [3, 4]
    assert run.ranks[0].unfinished_step == 5
    assert run.ranks[0].problem == "the script ended after 2 of 9 recorded steps"
    assert trace["stepscope"] == {"recorded_steps": [3, 4], "unfinished_step": 5}


def test_a_loop_that_raises_keeps_its_whole_steps_and_its_error(tmp_path: Path) -> None:
    def body(_: Recording) -> None:
        times(4, Loop().step)
        raise ArithmeticError("loss is not finite")

    with pytest.raises(ArithmeticError):
        record(tmp_path, body, steps=9)
    rank = load_run(tmp_path).ranks[0]
    assert (rank.status, rank.error, rank.recorded_steps) == (
        "failed",
        "ArithmeticError: loss is not finite",
        [3],
    )


def test_a_second_recording_into_the_same_directory_replaces_the_first(tmp_path: Path) -> None:
    record(tmp_path, lambda _: times(9, Loop().step))
    assert record(tmp_path, lambda _: times(9, Loop().step), steps=1).recorded_steps == [3]
    assert len(trace_files(tmp_path)) == 1
    assert sorted(path.name for path in tmp_path.iterdir())[1:] == ["run.json"]


def test_what_was_there_before_this_process_is_not_part_of_its_run(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").touch()
    leave_an_earlier_recording(tmp_path, written=1)
    run = record(tmp_path, lambda _: times(9, Loop().step))
    assert (run.world_size, [(rank.rank, rank.status) for rank in run.ranks]) == (1, [(0, "ended")])
    (file,) = trace_files(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"notes.txt", "run.json", file.name}


def test_what_other_ranks_have_written_since_stays(tmp_path: Path) -> None:
    leave_an_earlier_recording(tmp_path, written=time.time())
    with stepscope.record(tmp_path):
        assert (tmp_path / "rank2.meta.json").exists()
        (tmp_path / "rank2.meta.json").unlink()  # or this rank waits for that one


class TestSeveralOptimizers:
    @pytest.mark.parametrize("critic_steps", [1, 5])
    def test_the_last_or_rarest_of_a_cycle_ends_the_step(self, tmp_path: Path, critic_steps: int) -> None:
        critic, generator = Loop(torch.optim.RMSprop), Loop()

        def cycle() -> None:
            times(critic_steps, critic.step)
            generator.step()

        run = record(tmp_path, lambda _: times(10, cycle))
        (file,) = trace_files(
            tmp_path
        )  # one of critic steps alone, taken before the generator stepped, is gone
        trace = read_trace(file)
        assert list(steps_in(trace)) == [3, 4]
        for window in steps_in(trace).values():
            assert within(trace, "Optimizer.step#RMSprop.step", window) == critic_steps
            assert within(trace, STEP, window) == 1
        assert [(o.name, o.is_clock) for o in run.optimizers] == [("RMSprop", False), ("SGD", True)]
        assert [o.steps for o in run.optimizers] == [9 * critic_steps, 9]

    def test_an_optimizer_that_steps_another_counts_once(self, tmp_path: Path) -> None:
        inner = Loop()

        class Outer(torch.optim.Optimizer):
            def step(self, closure: object = None) -> None:  # type: ignore[override]
                inner.optimizer.step()

        outer = Outer(inner.model.parameters(), {})

        def step() -> None:
            inner.backward()
            outer.step()

        run = record(tmp_path, lambda _: times(9, step))
        assert [(o.name, o.steps) for o in run.optimizers] == [("Outer", 9)]
        assert run.recorded_steps == [3, 4]

    def test_optimizers_inside_backward_are_one_step_a_backward(self, tmp_path: Path) -> None:
        loop = Loop()
        for parameter in loop.model.parameters():
            own = torch.optim.SGD([parameter], lr=1e-3)
            parameter.register_post_accumulate_grad_hook(lambda _, own=own: own.step())

        run = record(tmp_path, lambda _: times(9, loop.backward))
        trace = read_trace(trace_files(tmp_path)[0])
        assert [within(trace, STEP, window) for window in steps_in(trace).values()] == [4, 4]
        assert run.recorded_steps == [3, 4]
        assert [(o.name, o.steps) for o in run.optimizers] == [("SGD in backward", 9)]

    def test_a_step_that_grad_scaler_leaves_out_counts_and_is_noted(self, tmp_path: Path) -> None:
        loop, scaler = Loop(), torch.amp.GradScaler("cpu", init_scale=2.0)

        def body(_: Recording) -> None:
            for step in range(9):
                loss = loop.model(torch.ones(2, 8)).sum() * (float("inf") if step == 4 else 1.0)
                scaler.scale(loss).backward()
                scaler.step(loop.optimizer)
                scaler.update()
                loop.optimizer.zero_grad()

        run = record(tmp_path, body)
        trace = read_trace(trace_files(tmp_path)[0])
        assert run.skipped_by_grad_scaler == [4]
        assert [within(trace, STEP, window) for window in steps_in(trace).values()] == [1, 0]

    def test_a_step_inside_a_compiled_function_is_seen(self, tmp_path: Path) -> None:
        loop = Loop()
        update = torch.compile(loop.optimizer.step, backend="eager")

        def step() -> None:
            loop.backward()
            update()
            loop.optimizer.zero_grad()

        assert record(tmp_path, lambda _: times(9, step)).recorded_steps == [3, 4]

    def test_a_step_that_raises_does_not_hide_the_next(self, tmp_path: Path) -> None:
        loop = Loop()

        def fails() -> float:
            raise ArithmeticError

        def body(_: Recording) -> None:
            with pytest.raises(ArithmeticError):
                loop.optimizer.step(fails)
            times(9, loop.step)

        assert [o.steps for o in record(tmp_path, body).optimizers] == [9]


class TestTheScriptsOwnProfiler:
    """Only one profiler can be active in a process, and the script's goes first."""

    @staticmethod
    def train(first: int, length: int, steps: int = 16) -> int:
        """Profile `length` steps from `first` on; how many steps that profiler saw."""
        loop, own = Loop(), profile(activities=[ProfilerActivity.CPU])
        for step in range(steps):
            if step == first:
                own.start()
            loop.step()
            if step == first + length - 1:
                own.stop()
        return sum(event.name == STEP for event in own.events())

    def test_ours_waits_until_it_is_over(self, tmp_path: Path) -> None:
        run = record(tmp_path, lambda _: self.train(first=1, length=4))
        assert run.recorded_steps == [7, 8]
        kinds = [time.kind for time in run.ranks[0].step_times]
        assert kinds[:6] == ["start-up", *["other-profiler"] * 3, "unprofiled", "profiler-warm-up"]

    def test_ours_gives_way_while_it_warms_up_and_comes_back(self, tmp_path: Path) -> None:
        seen = []
        run = record(tmp_path, lambda _: seen.append(self.train(first=2, length=3)))
        assert seen == [3]
        assert run.recorded_steps == [7, 8]

    def test_ours_ends_with_the_steps_it_has(self, tmp_path: Path) -> None:
        seen = []
        run = record(tmp_path, lambda _: seen.append(self.train(first=5, length=3)), steps=4)
        assert seen == [3]
        assert run.recorded_steps == [3, 4]
        assert run.ranks[0].problem == "the script started a profiler of its own after 2 of 4 recorded steps"

    def test_without_a_whole_step_ours_tries_again_later(self, tmp_path: Path) -> None:
        seen = []
        run = record(tmp_path, lambda _: seen.append(self.train(first=3, length=2)))
        assert seen == [2]
        assert run.recorded_steps == [7, 8]
        assert len(trace_files(tmp_path)) == 1

    def test_where_it_never_ends_the_line_says_so(self, tmp_path: Path) -> None:
        run = record(tmp_path, lambda _: self.train(first=0, length=16))
        assert (
            run.ranks[0].problem
            == "the script's own profiler left no room for another; audit its traces with `stepscope audit`"
        )


def test_the_package_offers_record_and_version_without_importing_torch() -> None:
    code = "import sys, stepscope; print(stepscope.__version__, 'torch' in sys.modules); stepscope.record"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == [stepscope.__version__, "False"]
    with pytest.raises(AttributeError, match="no attribute 'recrod'"):
        stepscope.recrod  # noqa: B018


def test_a_full_disk_ends_the_recording_and_not_the_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.replace

    def refuse(source: Path, target: Path) -> None:
        if str(target).endswith(".gz"):
            raise OSError(28, "No space left on device")
        real(source, target)

    monkeypatch.setattr(os, "replace", refuse)
    run = record(tmp_path, lambda _: times(12, Loop().step))
    assert run.ranks[0].problem == "the trace could not be written: No space left on device"
    assert (run.recorded_steps, run.optimizers[0].steps) == ([], 9)
