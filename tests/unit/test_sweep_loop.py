"""The runs of a sweep, one after the other: what is made, what is left out, what is said."""

from __future__ import annotations

from pathlib import Path

import pytest

from stepscope.cli.sweep_loop import Runs
from stepscope.cli.sweep_runs import Stopped
from stepscope.sweep.plan import Plan, Slot
from stepscope.sweep.results import FAILED, MEASURED, NO_DDP, ResultsFile, RunResult

STEP_MS = {"1": 120.0, "5": 100.0, "25": 105.0, "100": 140.0}


def plan(*, halving: bool = False) -> Plan:
    return Plan(
        script="train.py",
        arguments=[],
        launcher=[],
        knobs={"bucket-cap-mb": list(STEP_MS)},
        flags={},
        warmup=8,
        steps=3,
        seed=0,
        halving=halving,
    )


class Machine:
    """Takes as long for a cap as `STEP_MS` says; fails at some, has no DDP, or is stopped at a run."""

    def __init__(
        self, *, fails: tuple[str, ...] = (), no_ddp: bool = False, stops_at: int | None = None
    ) -> None:
        self.made: list[tuple[int, str]] = []
        self._fails, self._no_ddp, self._stops_at = fails, no_ddp, stops_at

    def measure(self, slot: Slot, knobs: dict[str, str]) -> RunResult:
        cap = knobs["bucket-cap-mb"]
        if len(self.made) == self._stops_at:
            raise Stopped("SIGINT")
        self.made.append((slot.round, cap))
        status = FAILED if cap in self._fails else NO_DDP if self._no_ddp else MEASURED
        return RunResult(
            knobs=knobs,
            round=slot.round,
            status=status,
            message="" if status == MEASURED else "why",
            folder="runs/x",
            started="2026-11-30T08:00:00+00:00",
            seconds=10.0,
            step_ms=[] if status == FAILED else [STEP_MS[cap]],
        )


def sweep(folder: Path, machine: Machine, repeat: int = 3, *, halving: bool = False) -> str | None:
    file = ResultsFile(folder)
    return Runs(plan(halving=halving), repeat, file, file.open(plan(halving=halving))).make(machine.measure)


def test_every_candidate_runs_once_a_round(tmp_path: Path) -> None:
    machine = Machine()
    assert sweep(tmp_path, machine) is None
    assert [number for number, _ in machine.made] == [0] * 4 + [1] * 4 + [2] * 4
    for number in range(3):
        assert {cap for of, cap in machine.made if of == number} == set(STEP_MS)


def test_a_stopped_sweep_goes_on_and_a_greater_repeat_adds_rounds(tmp_path: Path) -> None:
    first = Machine(stops_at=5)
    assert sweep(tmp_path, first) == "SIGINT"
    second = Machine()
    assert sweep(tmp_path, second) is None
    assert len(first.made) + len(second.made) == 12
    assert not set(first.made) & set(second.made)
    third = Machine()
    assert sweep(tmp_path, third, repeat=4) is None
    assert {number for number, _ in third.made} == {3}


def test_halving_spends_its_rounds_on_the_best_and_says_what_it_saves(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    machine = Machine()
    sweep(tmp_path, machine, repeat=4, halving=True)
    counts = {cap: sum(one == cap for _, one in machine.made) for cap in STEP_MS}
    assert counts == {"1": 1, "5": 4, "25": 4, "100": 1}
    assert capsys.readouterr().err.splitlines()[0] == (
        "stepscope: 4 candidates x 4 rounds = 16 runs, 10 by successive halving, in random order (seed 0), "
        "every second round reversed"
    )


def test_what_fails_is_run_once_now_and_once_more_by_the_next_command(tmp_path: Path) -> None:
    first, second = Machine(fails=("100",)), Machine(fails=("100",))
    sweep(tmp_path, first)
    sweep(tmp_path, second)
    assert [cap for _, cap in first.made].count("100") == 1
    assert second.made == [(0, "100")]


def test_without_ddp_one_run_tells_of_all_caps(tmp_path: Path) -> None:
    machine = Machine(no_ddp=True)
    sweep(tmp_path, machine)
    assert len(machine.made) == 1
    again = Machine(no_ddp=True)
    sweep(tmp_path, again)
    assert again.made == []


def test_each_run_is_told_with_the_time_that_is_left(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sweep(tmp_path, Machine(fails=("1",)), repeat=1)
    lines = capsys.readouterr().err.splitlines()
    assert lines[1] == "stepscope: how long they take is known after the first one"
    assert sorted(line.partition("cap-mb=")[2].partition(";")[0] for line in lines[2:]) == [
        "100: 140.0 ms",
        "1: why",
        "25: 105.0 ms",
        "5: 100.0 ms",
    ]
    assert lines[2].startswith("stepscope: run 1/4, round 1, bucket-cap-mb=")
    assert lines[2].endswith("; about 30 s left")
    assert lines[-1].startswith("stepscope: run 4/4, ")
    assert "left" not in lines[-1]
    assert max(map(len, lines[2:])) <= 80
