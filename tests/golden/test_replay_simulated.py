"""What communication cost, against simulated jobs that were run again without a wire."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from stepscope.ranks.pairing import pair
from stepscope.replay.change import Change, Segment
from stepscope.replay.graph import StepGraph, build
from stepscope.replay.network import Edge
from stepscope.trace import host
from stepscope.trace.classify import classify
from stepscope.trace.reader import read
from stepscope.trace.recording import Recording
from stepscope_workloads.simulate import CAUSES, Clock, Fabric, Host, Job, Simulation, parse, uniform
from stepscope_workloads.simulate.job import MIB, US

OF_THE_STEP = 1e-3
"""The simulated device needs no time between two activities, real ones do, and so does the replay: some ns a kernel."""


def recorded(simulation: Simulation, folder: Path) -> list[Recording]:
    recordings = []
    for rank, document in enumerate(simulation.documents()):
        path = folder / f"rank{rank}.json"
        path.write_text(json.dumps(document))
        recordings.append(classify(read(path)))
    return recordings


def graphs(recordings: list[Recording]) -> list[StepGraph]:
    pairing = pair(recordings)
    built = [build(recordings, pairing, window.number) for window in recordings[0].steps.windows]
    return [graph for graph in built if graph is not None]


def assert_costs(job: Job, folder: Path) -> None:
    """Of each step; but where the host runs ahead the first one begins on an idle device, as none amid other steps does."""
    simulation = Simulation(job)
    truth = simulation.truth()
    for number, graph in enumerate(graphs(recorded(simulation, folder))):
        assert graph.replay().wall == pytest.approx(graph.measured, abs=1)
        costs = graph.cost()
        if not (job.host.reads_loss or number):
            continue
        for rank in truth["ranks"]:
            step = rank["steps"][number]
            assert costs[rank["rank"]] == pytest.approx(step["cost_ns"], abs=OF_THE_STEP * step["step_ns"])


@pytest.mark.parametrize("reads_loss", [True, False], ids=["read", "run-ahead"])
@pytest.mark.parametrize("name", ["", *CAUSES])
def test_the_cost_under_every_cause_is_that_of_the_job_without_a_wire(
    name: str, reads_loss: bool, tmp_path: Path
) -> None:
    causes = (parse(name),) if name else ()
    fabric, own = Fabric(gb_per_s=3.0), Host(reads_loss=reads_loss)
    assert_costs(Job(ranks=3, steps=2, causes=causes, fabric=fabric, host=own), tmp_path)


@pytest.mark.parametrize("name", ["", *CAUSES])
def test_the_cost_is_the_same_where_the_profiler_recorded_who_waits_for_whom(
    name: str, tmp_path: Path
) -> None:
    """Without inferring: every wait between streams is drawn, also those that kept nobody waiting."""
    causes = (parse(name),) if name else ()
    assert_costs(
        Job(ranks=3, steps=2, causes=causes, fabric=Fabric(gb_per_s=3.0), sync_events=True), tmp_path
    )


@pytest.mark.parametrize("sharding", ["ddp", "fsdp"])
@pytest.mark.parametrize("speed", [3.0, 15.0, 100.0])
def test_the_cost_on_every_link_is_that_of_the_job_without_a_wire(
    sharding: str, speed: float, tmp_path: Path
) -> None:
    assert_costs(Job(ranks=4, steps=2, sharding=sharding, fabric=Fabric(gb_per_s=speed)), tmp_path)


@pytest.mark.parametrize("where", ["forward", "between", "backward"])
def test_the_cost_with_a_host_that_hardly_keeps_ahead_is_exact(where: str, tmp_path: Path) -> None:
    small = uniform(layers=6, kernel=30 * US, kernels=6, backward=70 * US, parameters=2_000_000)
    slow = Host(operator=15 * US, python=120 * US)
    cause = parse(f"host-sync:where={where},times=3")
    assert_costs(Job(model=small, ranks=3, host=slow, causes=(cause,), bucket_cap=5 * MIB), tmp_path)


def test_the_cost_between_hosts_whose_clocks_differ_is_exact(tmp_path: Path) -> None:
    clocks = (Clock(), Clock(-1_300_000), Clock(900_000_000))
    straggler = parse("straggler:rank=2,ms=8")
    job = Job(ranks=3, ranks_per_host=1, clocks=clocks, causes=(straggler,), fabric=Fabric(gb_per_s=3.0))
    assert_costs(job, tmp_path)


def test_contention_is_no_cost_of_the_replay(tmp_path: Path) -> None:
    """Kernels keep the time that they took beside a transfer: METRICS states contention apart."""
    job = Job(causes=(parse("contention:factor=1.5"),), fabric=Fabric(gb_per_s=15.0))
    assert_costs(job, tmp_path)


@pytest.mark.parametrize("operator", [10 * US, 60 * US], ids=["device-bound", "host-bound"])
def test_a_host_that_is_freed_to_run_ahead_gains_what_the_device_does(operator: int, tmp_path: Path) -> None:
    """The read at the end of each step goes: the host's window shrinks to its launches, the device still has its work to do."""
    job = Job(ranks=2, steps=4, host=Host(operator=operator), model=uniform(layers=6, kernels=3))
    freed = Simulation(replace(job, host=replace(job.host, reads_loss=False))).truth()
    simulation = Simulation(job)
    truth = simulation.truth()
    for number, graph in list(enumerate(graphs(recorded(simulation, tmp_path))))[1:]:
        reads = frozenset(zip(*(column.tolist() for column in blocked(graph)), strict=True))
        saved = graph.saved(Change(unblocked=reads))
        for was, now in zip(truth["ranks"], freed["ranks"], strict=True):
            difference = was["steps"][number]["step_ns"] - now["steps"][number]["step_ns"]
            assert saved[was["rank"]] == pytest.approx(
                difference, abs=OF_THE_STEP * was["steps"][number]["step_ns"]
            )


def blocked(graph: StepGraph) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Owner and row of whatever the hosts of a step were blocked by."""
    blocks = graph.network.kind == Edge.BLOCK
    return graph.network.owner[blocks], graph.network.row[blocks]


@pytest.mark.parametrize("where", ["forward", "backward"])
def test_a_read_on_the_host_is_priced_by_taking_it_out(where: str, tmp_path: Path) -> None:
    """Against the same job without the reads; the one at the end of the step stays."""
    job = Job(
        ranks=2,
        steps=3,
        causes=(parse(f"host-sync:where={where},times=4"),),
        host=Host(operator=20 * US, python=200 * US),
        model=uniform(kernel=100 * US, backward=200 * US),
    )
    simulation = Simulation(job)
    recordings = recorded(simulation, tmp_path)
    saved: list[float] = []
    for graph in graphs(recordings):
        saved.extend(graph.saved(without_reads(recordings, graph.step)).values())
    assert sum(saved) / len(saved) == pytest.approx(simulation.truth()["causes"][0]["price_ns"], rel=0.05)


def without_reads(recordings: list[Recording], step: int) -> Change:
    """A step's reads of device values taken out, all but the last: their host time, their waits, their copies."""
    segments: list[Segment] = []
    rows: set[tuple[int, int]] = set()
    for index, recording in enumerate(recordings):
        trace, events = recording.trace, recording.trace.events
        window = next(window for window in recording.steps.windows if window.number == step)
        threads = trace.events.thread
        reads = host.select(trace, lambda name: name == "aten::item")
        reads = reads[(events.start[reads] >= window.start) & (events.start[reads] < window.end)][:-1]
        for read_row in reads.tolist():
            start, end = int(events.start[read_row]), int(events.end[read_row])
            segments.append(Segment(index, int(threads[read_row]), start, end))
            inside = (events.start >= start) & (events.end <= end) & (threads == threads[read_row])
            rows |= {(index, int(row)) for row in np.flatnonzero(inside)}
            copies = np.isin(events.correlation, events.correlation[inside & (events.correlation >= 0)])
            rows |= {(index, int(row)) for row in np.flatnonzero(copies)}
    return Change(segments=tuple(segments), unwaited=frozenset(rows), activities=dict.fromkeys(rows, 0.0))


def test_a_straggler_is_priced_by_not_waiting_for_it(tmp_path: Path) -> None:
    """The ranks that waited for it would have been quicker by its 8 ms."""
    job = Job(ranks=4, steps=2, causes=(parse("straggler:rank=2,ms=8"),), jitter=0.0)
    simulation = Simulation(job)
    for graph in graphs(recorded(simulation, tmp_path)):
        saved = graph.saved(Change(ignored=frozenset({2})))
        others = [saved[index] for index in (0, 1, 3)]
        assert others == pytest.approx([8e6] * 3, rel=0.05)


def test_the_same_job_with_a_wire_twice_as_fast_is_foreseen(tmp_path: Path) -> None:
    """Half the transfer time, against the job really run so."""
    job = Job(ranks=3, steps=2, fabric=Fabric(alpha=0, gb_per_s=3.0))
    faster = Simulation(replace(job, fabric=Fabric(alpha=0, gb_per_s=6.0))).truth()
    for number, graph in enumerate(graphs(recorded(Simulation(job), tmp_path))):
        half = graph.replay(Change(transfers=dict.fromkeys(graph.numbers, 0.5))).wall
        for rank in faster["ranks"]:
            assert half[rank["rank"]] == pytest.approx(rank["steps"][number]["wall_ns"], rel=1e-3)
