"""Merged buckets against simulated jobs that were run again with them, where something waits for each small bucket.

A wait goes where the launch of what it is for goes: were it left where the small bucket was waited for, the merged one,
which is launched later, would wait for itself.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from device_cases import simulated
from stepscope.audit import rebucket
from stepscope.audit.case import Case
from stepscope.audit.causes.finding import in_step
from stepscope.audit.causes.rounds import reducing_rounds
from stepscope.replay.change import Change
from stepscope_workloads.simulate import Fabric, Host, Job, Simulation, parse, uniform
from stepscope_workloads.simulate.job import MIB, US

CAP = 20 * MIB
"""Three layers of 8 MB to a bucket."""
MODEL = uniform(layers=8, kernel=200 * US, backward=200 * US, parameters=2_000_000)
LATENCY = Fabric(alpha=20 * US, gb_per_s=40.0)


def merged(case: Case, link: rebucket.Link) -> Change | None:
    """The first step's small buckets made of a cap of 20 MiB, if that is possible."""
    graph = next(iter(case.graphs.values()))
    small = [round_ for one in in_step(case, graph) for round_ in reducing_rounds(one)]
    return rebucket.remade(case, graph, small, link, [CAP])


def saved_by_merging(job: Job, folder: Path) -> tuple[float, float]:
    """What the replay and the simulator say that a job of one step gains by its merged buckets, in ms."""
    simulation = Simulation(job)
    case = simulated(simulation, folder)
    link = rebucket.link_of(case)
    assert link is not None
    change = merged(case, link)
    assert change is not None
    assert len(change.recut[0].buckets) == 3
    gains = case.graphs[job.first_step].saved(change).values()
    return sum(gains) / len(gains) / 1e6, simulation.truth()["causes"][0]["price_ns"] / 1e6


@pytest.mark.parametrize("waiting", ["wait-edge-in-backward", "blocking-environment"])
def test_what_waited_for_small_buckets_waits_for_the_merged_one_after_its_launch(
    waiting: str, tmp_path: Path
) -> None:
    causes = parse("bucket-too-small"), parse(waiting)
    job = Job(model=MODEL, fabric=LATENCY, bucket_cap=CAP, causes=causes, jitter=0.0, steps=1)
    found, known = saved_by_merging(job, tmp_path)
    assert found == pytest.approx(known, rel=0.1)


def test_a_launch_that_found_no_room_waits_for_no_bucket(tmp_path: Path) -> None:
    """It waited for whatever was to move on: a merged bucket that is launched only later it can't have waited for."""
    causes, model = (parse("bucket-too-small"),), uniform(kernels=1, backward=200 * US, parameters=2_000_000)
    job = Job(model=model, fabric=LATENCY, causes=causes, steps=1, host=Host(run_ahead=5))
    case = simulated(Simulation(job), tmp_path)
    assert merged(case, rebucket.Link(0.0, 0.1)) is not None


def test_a_change_that_was_found_possible_is_not_replayed_a_second_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = simulated(Simulation(Job(steps=1)), tmp_path)
    graph = next(iter(case.graphs.values()))
    change = Change(transfers=dict.fromkeys(graph.numbers, 0.5))
    assert graph.possible(change)
    pace = graph.pace(change)
    monkeypatch.setattr("stepscope.replay.graph.apply", None)
    assert graph.pace(change) == pace


def test_collectives_on_the_stream_of_the_compute_have_no_other_buckets(tmp_path: Path) -> None:
    causes = parse("bucket-too-small"), parse("collective-on-compute-stream")
    case = simulated(Simulation(Job(model=MODEL, causes=causes, steps=1)), tmp_path)
    assert merged(case, rebucket.Link(0.0, 0.1)) is None
