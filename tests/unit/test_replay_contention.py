"""How much longer compute takes beside a collective, told from what it takes alone."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from build_trace import TraceBuilder
from stepscope.audit.build import audit
from stepscope.replay.contended import slowdown
from stepscope.replay.contention import Contention, contention
from stepscope.replay.timeline import Timeline
from stepscope.trace.classify import classify
from stepscope.trace.reader import read
from stepscope_workloads.simulate import Fabric, Job, Simulation, parse, uniform


def steps(folder: Path, *, slowed: float, reducing: range, count: int = 8) -> Contention | None:
    """Steps of two operators of unlike size, 100 and 300 us alone; those beside a transfer take `slowed` us more."""
    trace = TraceBuilder(backend="gloo")
    for number in range(count):
        origin = 1000.0 * number
        trace.step(number + 5, origin, 1000)
        longer = slowed if number in reducing else 0.0
        trace.cpu_op("aten::mm", origin + 10, 100)
        trace.cpu_op("aten::mm", origin + 200, 300 + longer)
        trace.cpu_op("aten::copy_", origin + 250, 20)
        if number in reducing:
            trace.gloo("all_reduce", origin + 190, 500, elements=1000, launched=origin + 150)
    return of(trace.write(folder / "rank0.json"))


def of(file: Path) -> Contention | None:
    recording = classify(read(file))
    return contention(recording, Timeline(recording.trace))


def test_an_operator_is_compared_with_itself_in_the_steps_without_a_transfer(tmp_path: Path) -> None:
    """Five of eight steps lose 60 us; the operator inside the other is no compute of its own."""
    found = steps(tmp_path, slowed=60.0, reducing=range(5))
    assert found is not None
    assert found.by_step(range(5, 13)) == {5: 60e3, 6: 60e3, 7: 60e3, 8: 60e3, 9: 60e3, 10: 0, 11: 0, 12: 0}
    assert found.compared == 1.0


def test_those_that_the_scheduler_stopped_are_no_contention_where_as_many_are_alone_too(
    tmp_path: Path,
) -> None:
    """Of every four equal operators one takes twice as long, beside a transfer as without one."""
    trace = TraceBuilder(backend="gloo")
    for number in range(16):
        origin = 1000.0 * number
        trace.step(number + 5, origin, 1000)
        trace.cpu_op("aten::mm", origin + 200, 200.0 if number % 4 == 0 else 100.0)
        if number < 8:
            trace.gloo("all_reduce", origin + 190, 500, elements=1000, launched=origin + 150)
    file = trace.write(tmp_path / "rank0.json")
    found = of(file)
    assert found is not None
    assert found.by_step(range(5, 13)) == {5: 75e3, 6: -25e3, 7: -25e3, 8: -25e3} | {
        9: 75e3,
        10: -25e3,
        11: -25e3,
        12: -25e3,
    }
    recording = classify(read(file))
    assert slowdown([(recording, Timeline(recording.trace))]) == 1.0


def test_without_a_slowdown_there_is_no_contention(tmp_path: Path) -> None:
    found = steps(tmp_path, slowed=0.0, reducing=range(5))
    assert found is not None
    assert set(found.by_step(range(5, 13)).values()) == {0.0}


def layers(folder: Path, *, slowed: float) -> Contention | None:
    """Eight layers a step, each of two operators of one name and of 100 and 200 us; always beside the last three a transfer."""
    trace = TraceBuilder(backend="gloo")
    for number in range(2):
        origin = 5000.0 * number
        trace.step(number + 5, origin, 5000)
        for layer in range(8):
            at, longer = origin + 600 * layer, slowed if layer >= 5 else 0.0
            trace.cpu_op("aten::mm", at + 10, 100 + longer)
            trace.cpu_op("aten::add", at + 200, 20 + longer)
            trace.cpu_op("aten::mm", at + 300, 200 + longer)
            trace.cpu_op("aten::mul", at + 560, 30 + longer)
        trace.gloo("all_reduce", origin + 2990, 1990, elements=1000, launched=origin + 2980)
    return of(trace.write(folder / "rank0.json"))


def test_an_operator_that_never_runs_alone_is_compared_with_its_like_in_other_layers(tmp_path: Path) -> None:
    """Both sizes have one name, and are told apart by what comes before and after them: a step's last two by nothing."""
    found = layers(tmp_path, slowed=15.0)
    assert found is not None
    assert found.by_step([5, 6]) == {5: (12 - 2) * 15e3, 6: (12 - 2) * 15e3}
    assert found.compared == pytest.approx(1 - (215 + 45) / (3 * (115 + 35 + 215 + 45)))


def test_what_never_runs_alone_cannot_be_told(tmp_path: Path) -> None:
    assert steps(tmp_path, slowed=60.0, reducing=range(8)) is None


def test_an_audit_states_contention_apart_from_cost(tmp_path: Path) -> None:
    """Against the simulator's own: kernels keep their length in the replay, so none of it is in the cost."""
    job = Job(ranks=2, causes=(parse("contention:factor=1.5"),), fabric=Fabric(gb_per_s=15.0))
    simulation = Simulation(job)
    recordings = []
    for rank, document in enumerate(simulation.documents()):
        file = tmp_path / f"rank{rank}.json"
        file.write_text(json.dumps(document))
        recordings.append(classify(read(file)))
    found, truth = audit(recordings), simulation.truth()
    steps = [step for rank in truth["ranks"] for step in rank["steps"]]
    contention_ms, cost_ms, step_ms = (
        sum(step[name] for step in steps) / len(steps) / 1e6
        for name in ("contention_ns", "cost_ns", "step_ns")
    )
    assert found.verdict.contention_ms == pytest.approx(contention_ms, rel=0.1)
    assert found.verdict.cost_share == pytest.approx(cost_ms / step_ms, rel=0.02)
    assert "ms a step longer than the same takes alone (contention; " in found.verdict.explanation


@pytest.mark.parametrize("factor", [1.2, 1.5])
def test_kernels_of_one_size_are_compared_by_their_name(factor: float, tmp_path: Path) -> None:
    """Against the simulator, which knows by how much it slowed each kernel down; the first bucket is late in backward."""
    model = uniform(layers=8, kernels=4)
    job = Job(
        model=model,
        ranks=2,
        jitter=0.0,
        causes=(parse(f"contention:factor={factor}"),),
        fabric=Fabric(gb_per_s=15.0),
    )
    simulation = Simulation(job)
    file = tmp_path / "rank0.json"
    file.write_text(json.dumps(next(simulation.documents())))
    found = of(file)
    assert found is not None
    truth = {step["step"]: step["contention_ns"] for step in simulation.truth()["ranks"][0]["steps"]}
    assert sum(found.by_step(truth).values()) == pytest.approx(sum(truth.values()), rel=0.05)
