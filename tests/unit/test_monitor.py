"""The monitor in this very process, without other ranks: what it tells, what it costs, and what it puts up with."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import types
from importlib.util import find_spec
from pathlib import Path

import msgspec
import pytest
import torch
from torch.profiler import ProfilerActivity, profile

import stepscope
from stepscope.capture.helper import Figures
from stepscope.capture.monitor import Monitor
from stepscope.capture.monitor_cost import Cost, Kind, MonitorCost
from stepscope.capture.monitor_log import Entry, MonitorLog, cost_of, line_of, scalars_of
from stepscope.errors import InputError

FIGURES = Figures(
    verdict="comm-sensitive",
    reason="hidden now",
    step_ms=140.4,
    comm_ms=72.5,
    exposed_ms=12.34,
    overlap=0.829,
    overlap_wire=0.851,
    cost_share=0.03,
    cause="link-bound",
    cause_ms=4.0,
)


class Loop:
    """A parameter that is trained; its value tells how often."""

    def __init__(self) -> None:
        self.weight = torch.nn.Parameter(torch.zeros(8, 8))
        self.optimizer = torch.optim.SGD([self.weight], lr=1.0)

    def steps(self, count: int) -> None:
        for _ in range(count):
            self.optimizer.zero_grad()
            (self.weight @ torch.ones(8, 8)).mean().backward()
            self.optimizer.step()

    @property
    def made(self) -> int:
        return round(-8 * float(self.weight[0, 0].detach()))


def entries(out: Path) -> list[Entry]:
    return [
        msgspec.json.decode(line, type=Entry) for line in (out / "monitor.jsonl").read_bytes().splitlines()
    ]


class TestWhatItTells:
    def test_is_a_line(self) -> None:
        entry = Entry(step=400, figures=FIGURES, ranks=8)
        assert line_of(entry) == (
            "step 400: overlap 83 % (wire 85 %), exposed 12.3 ms of 140 ms, comm-sensitive; link-bound"
        )

    def test_leaves_out_what_is_not_known(self) -> None:
        figures = Figures(verdict="no communication", reason="no collective ran", step_ms=9.0, exposed_ms=0.0)
        assert line_of(Entry(step=4, figures=figures, ranks=1, kept="out/step000004")) == (
            "step 4: exposed 0.0 ms of 9 ms, no communication; traces kept in out/step000004"
        )

    def test_is_why_there_is_nothing_to_tell(self) -> None:
        entry = Entry(step=4, problem="rank 3: the script's own profiler is active", ranks=8)
        assert line_of(entry) == "step 4: not audited: rank 3: the script's own profiler is active"

    def test_is_scalars_for_tensorboard(self, tmp_path: Path) -> None:
        noted: list[tuple[str, float, int]] = []

        class Noting:
            def add_scalar(self, tag: str, scalar_value: float, global_step: int) -> None:
                noted.append((tag, scalar_value, global_step))

        MonitorLog(tmp_path, Noting()).tell(
            Entry(step=400, figures=FIGURES, ranks=8, monitor_cost_share=0.006)
        )
        assert noted == [
            ("stepscope/overlap", 0.829, 400),
            ("stepscope/overlap_wire", 0.851, 400),
            ("stepscope/step_ms", 140.4, 400),
            ("stepscope/comm_ms", 72.5, 400),
            ("stepscope/exposed_ms", 12.34, 400),
            ("stepscope/cost_share", 0.03, 400),
            ("stepscope/monitor_cost_share", 0.006, 400),
        ]

    def test_names_the_monitors_cost_apart_from_communications_and_keeps_its_first_name(self) -> None:
        cost = cost_of(Cost(cost_ms=120.0, quiet_step_ms=140.0, share=0.006))
        entry = msgspec.convert({"step": 400, "figures": FIGURES, "ranks": 8, **cost}, Entry)
        line = msgspec.to_builtins(entry)
        assert (line["monitor_cost_share"], line["cost_share"], line["figures"]["cost_share"]) == (
            0.006,
            0.006,
            0.03,
        )

    def test_goes_to_the_active_run_of_weights_and_biases_without_a_commit(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A stand-in for the service's client, of which only `run.log` is used."""
        logged: list[tuple[dict[str, float], bool]] = []
        client = types.ModuleType("wandb")
        client.run = types.SimpleNamespace(log=lambda data, commit: logged.append((data, commit)))  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, "wandb", client)
        entry = Entry(step=400, figures=FIGURES, ranks=8)
        MonitorLog(tmp_path, None).tell(entry)
        assert logged == [({**scalars_of(entry), "stepscope/step": 400}, False)]


class TestItsCost:
    @staticmethod
    def after(*steps: tuple[Kind, int]) -> MonitorCost:
        cost, now = MonitorCost(), 1_000
        cost.step_ended(Kind.QUIET, now)
        for kind, took_ms in steps:
            now += took_ms * 1_000_000
            cost.step_ended(kind, now)
        return cost

    def test_is_what_touched_steps_took_longer_than_a_quiet_one(self) -> None:
        quiet = [(Kind.QUIET, 100)] * 7
        touched = [(Kind.TOUCHED, 130), (Kind.TOUCHED, 110), (Kind.TOUCHED, 160)]
        found = self.after(*quiet, *touched).taken()
        assert found is not None
        assert (found.cost_ms, found.quiet_step_ms, found.share) == (100.0, 100.0, 0.1)

    def test_counts_the_steps_beside_an_audit_by_the_typical_one(self) -> None:
        beside = [(Kind.BESIDE, 102), (Kind.BESIDE, 102), (Kind.BESIDE, 500)]
        found = self.after((Kind.QUIET, 100), *beside).taken()
        assert found is not None
        assert found.cost_ms == 6.0

    def test_is_not_known_without_a_quiet_step(self) -> None:
        assert self.after((Kind.TOUCHED, 130)).taken() is None

    def test_adds_up_over_recorded_steps(self) -> None:
        cost = self.after((Kind.QUIET, 100), (Kind.TOUCHED, 120))
        cost.taken()
        assert cost.taken() is None
        assert (cost.known, cost.lost_ms, cost.quiet_ms) == (1, 20.0, 200.0)

    def test_is_told_in_words_with_what_it_rests_on(self) -> None:
        def told(steps: list[tuple[Kind, int]], recorded: int = 1) -> str:
            cost = self.after(*steps)
            cost.taken()
            return cost.in_words(recorded)

        quiet = [(Kind.QUIET, 100)] * 9
        assert told([*quiet, (Kind.TOUCHED, 120)]) == "that took 20 ms each, 2.00 % of the time"
        assert told([*quiet[:4], (Kind.TOUCHED, 150)], 3) == (
            "that took 50 ms each, 10.00 % of the time (known of 1 of them, by 4 quiet steps only)"
        )
        assert MonitorCost().in_words(2) == (
            "too few steps lie between them to say what that took; a larger N would tell"
        )

    def test_beyond_the_steps_own_time_is_told_in_times_and_below_zero_as_nothing(self) -> None:
        """Steps of a few ms, each recorded one dearer than all of them: a share of over 100 % would be none of the time."""
        short = self.after(*[(Kind.QUIET, 4)] * 9, (Kind.TOUCHED, 104))
        short.taken()
        assert short.in_words(1) == (
            "that took 100 ms each, 2.5 times as long as the steps themselves; a larger N costs less"
        )
        luck = self.after(*[(Kind.QUIET, 100)] * 9, (Kind.TOUCHED, 90))
        luck.taken()
        assert luck.in_words(1) == "that took no longer than steps differ by themselves"


class TestAMonitoredLoop:
    def test_records_every_so_many_steps_and_leaves_torch_as_it_was(self, tmp_path: Path) -> None:
        loop, before = Loop(), torch.amp.GradScaler.step
        with stepscope.monitor(every=5, out=tmp_path, writer=None) as monitor:
            assert stepscope.monitor(every=7) is monitor
            loop.steps(12)
        assert [(one.step, one.problem, one.ranks) for one in entries(tmp_path)] == [
            (5, None, 1),
            (10, None, 1),
        ]
        figures = entries(tmp_path)[0].figures
        assert figures is not None
        assert figures.verdict == "no communication"
        assert loop.made == 12
        assert len([*tmp_path.glob("events.out.tfevents.*")]) == (find_spec("tensorboard") is not None)
        assert torch.amp.GradScaler.step is before
        assert Monitor.running is None

    def test_counts_the_steps_that_the_script_tells(self, tmp_path: Path) -> None:
        loop = Loop()
        with stepscope.monitor(every=4, out=tmp_path) as monitor:
            for _ in range(6):
                loop.steps(2)
                monitor.step()
        assert [one.step for one in entries(tmp_path)] == [4]

    def test_makes_way_for_the_scripts_own_profiler_and_goes_on_after_it(
        self, tmp_path: Path, capfd: pytest.CaptureFixture[str]
    ) -> None:
        loop = Loop()
        with stepscope.monitor(every=5, out=tmp_path):
            loop.steps(4)
            with profile(activities=[ProfilerActivity.CPU]) as own:
                loop.steps(3)
            loop.steps(5)
        assert any(event.name == "aten::mm" for event in own.events() or [])
        assert [(one.step, one.problem) for one in entries(tmp_path)] == [
            (5, "rank 0: the script started a profiler of its own"),
            (10, None),
        ]
        assert (
            "step 5: not audited: rank 0: the script started a profiler of its own" in capfd.readouterr().err
        )

    def test_that_is_too_short_says_so(self, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
        with stepscope.monitor(every=50, out=tmp_path):
            Loop().steps(3)
        assert capfd.readouterr().err.splitlines()[-1] == (
            "stepscope: nothing was monitored: the script made 3 steps, and step 50 is the first"
        )

    def test_goes_on_where_nothing_can_be_written(
        self, tmp_path: Path, capfd: pytest.CaptureFixture[str]
    ) -> None:
        (tmp_path / "file").touch()
        loop = Loop()
        with stepscope.monitor(every=4, out=tmp_path / "file"):
            loop.steps(10)
        assert loop.made == 10
        lines = [line for line in capfd.readouterr().err.splitlines() if "cannot write" in line]
        assert len(lines) == 1

    def test_goes_on_without_the_process_that_reads_its_traces(self, tmp_path: Path) -> None:
        loop = Loop()
        with stepscope.monitor(every=4, out=tmp_path) as monitor:
            loop.steps(4)
            os.kill(monitor._helper._started().pid, signal.SIGKILL)
            loop.steps(6)
        assert loop.made == 10
        assert [one.problem for one in entries(tmp_path)] == [
            "rank 0: the process that reads traces ended",
            None,
        ]

    def test_does_nothing_where_it_is_not_enabled(self, tmp_path: Path) -> None:
        with stepscope.monitor(every=4, out=tmp_path / "out", enabled=False) as monitor:
            Loop().steps(9)
            monitor.step()
        assert list(tmp_path.iterdir()) == []

    def test_refuses_too_short_an_interval(self) -> None:
        with pytest.raises(InputError, match="cannot monitor every 3 steps; 4 is the least"):
            stepscope.monitor(every=3)


def test_the_package_offers_monitor_without_importing_torch() -> None:
    code = "import sys, stepscope; print('torch' in sys.modules); print(stepscope.monitor.__name__)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "monitor"]
