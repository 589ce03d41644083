"""The replay's algebra: slower transfers never shorten a step, free ones never lengthen it."""

from __future__ import annotations

import json
import random
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from build_trace import BACKWARD, MAIN, TraceBuilder
from stepscope.ranks.pairing import pair
from stepscope.replay.change import Change, Segment
from stepscope.replay.graph import StepGraph, build
from stepscope.replay.network import Circle, Edge, Network
from stepscope.trace.classify import classify
from stepscope.trace.reader import read
from stepscope_workloads.simulate import Fabric, Job, Simulation, uniform

ROUNDING = 10.0
"""ns: every scaled lag is rounded to one."""
COPY = "torch.distributed.ddp.reducer::copy_bucket_to_grad"


def gloo_step(rank: int, draw: random.Random) -> TraceBuilder:
    """A step of DDP with some buckets, whose transfers start and take what chance will have, on two workers."""
    trace = TraceBuilder(rank=rank, world_size=2, backend="gloo")
    clock = draw.randint(1, 500)
    trace.cpu_op("aten::addmm", 1, clock)
    free, ends = [0, 0], list[int]()
    sizes = [1000 * (k + 1) for k in range(draw.randint(1, 5))]
    for size in sizes:
        lasts = draw.randint(10, 900)
        trace.cpu_op(BACKWARD + "torch::autograd::AccumulateGrad", clock, lasts + 20)
        trace.cpu_op("aten::mul", clock, lasts)
        launched = clock + lasts + 1
        worker = free.index(min(free))
        start = max(launched + draw.randint(1, 300), *ends[-1:], free[worker])
        free[worker] = start + draw.randint(1, 3000)
        ends.append(start)
        trace.gloo("all_reduce", start, free[worker] - start, elements=size, launched=launched, worker=worker)
        clock += lasts + draw.randint(30, 60)
    clock = max(clock, *free) + draw.randint(1, 40)
    for size in sizes:
        trace.cpu_op(COPY, clock, 10, dims=[[size]], types=["float"])
        clock += 15
    trace.optimizer(clock, 100)
    trace.cpu_op("aten::add_", clock, 100)
    trace.step(5, 0, clock + 150)
    return trace


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("replay")


def gloo_graph(folder: Path, seed: int) -> StepGraph:
    """Both ranks launch the same buckets; each has times of its own."""
    buckets = random.Random(seed).randint(0, 1 << 30)
    traces = [gloo_step(rank, random.Random(buckets)) for rank in range(2)]
    late = random.Random(seed + 1).randint(0, 2000)
    for event in traces[1].events:
        if "ts" in event and event.get("ph") == "X":
            event["ts"] += late
    files = [trace.write(folder / f"rank{rank}.json") for rank, trace in enumerate(traces)]
    recordings = [classify(read(file)) for file in files]
    built = build(recordings, pair(recordings), 5)
    assert built is not None
    return built


def device_graph(folder: Path, seed: int) -> StepGraph:
    draw = random.Random(seed)
    model = uniform(
        layers=draw.randint(1, 4), kernels=draw.randint(1, 3), parameters=draw.randint(1, 4) * 1_000_000
    )
    fabric = Fabric(gb_per_s=draw.uniform(1, 60))
    sharding = draw.choice(["ddp", "fsdp"])
    job = Job(
        model=model, ranks=2, steps=1, fabric=fabric, sharding=sharding, bucket_cap=draw.randint(1, 30) << 20
    )
    files = []
    for rank, document in enumerate(Simulation(job).documents()):
        files.append(folder / f"rank{rank}.json")
        files[-1].write_text(json.dumps(document))
    recordings = [classify(read(file)) for file in files]
    built = build(recordings, pair(recordings), job.first_step)
    assert built is not None
    return built


def scaled(graph: StepGraph, factor: float) -> dict[int, float]:
    return graph.replay(Change(transfers=dict.fromkeys(graph.numbers, factor))).wall


def assert_algebra(graph: StepGraph) -> None:
    assert graph.replay().wall == pytest.approx(graph.measured, abs=1)
    walls = [scaled(graph, factor) for factor in (0.0, 0.3, 1.0, 1.7, 5.0)]
    for faster, slower in pairwise(walls):
        assert all(faster[index] <= slower[index] + ROUNDING * len(graph.numbers) for index in faster)
    for index, cost in graph.cost().items():
        assert 0 <= cost <= graph.measured[index]


few = settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@few
@given(seed=st.integers(0, 1 << 30))
def test_slower_transfers_never_shorten_a_gloo_step_and_free_ones_never_lengthen_it(
    folder: Path, seed: int
) -> None:
    assert_algebra(gloo_graph(folder, seed))


@few
@given(seed=st.integers(0, 1 << 30))
def test_slower_transfers_never_shorten_a_gpu_step_and_free_ones_never_lengthen_it(
    folder: Path, seed: int
) -> None:
    assert_algebra(device_graph(folder, seed))


@few
@given(seed=st.integers(0, 1 << 30), start=st.integers(0, 4000), length=st.integers(1, 4000))
def test_host_time_that_is_cut_never_lengthens_a_step_and_saves_no_more_than_itself(
    folder: Path, seed: int, start: int, length: int
) -> None:
    graph = gloo_graph(folder, seed)
    cut = Segment(0, MAIN * (1 << 33) + MAIN, start * 1000, (start + length) * 1000)
    walls = graph.replay(Change(segments=(cut,))).wall
    assert graph.measured[0] - length * 1000 - 1 <= walls[0] <= graph.measured[0] + 1
    assert walls[1] <= graph.measured[1] + 1


@few
@given(seed=st.integers(0, 1 << 30))
def test_taking_out_every_wait_saves_no_less_than_free_transfers(folder: Path, seed: int) -> None:
    graph = gloo_graph(folder, seed)
    unwaited = graph.replay(Change(unwaited=frozenset(graph.numbers))).wall
    free = scaled(graph, 0.0)
    assert all(unwaited[index] <= free[index] + 1 for index in free)


@given(draw=st.randoms(use_true_random=False), in_order=st.booleans())
def test_every_point_comes_when_the_last_that_it_waits_for_lets_it_in_whatever_order_was_measured(
    draw: random.Random, *, in_order: bool
) -> None:
    count = draw.randint(1, 12)
    times = sorted(draw.randint(0, 6) for _ in range(count))
    pairs = [(a, b) for b in range(count) for a in range(b) if draw.random() < 0.4]
    measured = times if in_order else times[::-1]
    network = _network(measured, pairs, [draw.randint(0, 5) for _ in pairs], draw)
    comes: list[float] = []
    for point in range(count):
        waits = [
            comes[a] + lag for (a, b), lag in zip(pairs, network.lag.tolist(), strict=True) if b == point
        ]
        begins = max(waits, default=float(measured[point]))
        comes.append(begins + int(network.residual[point]) + float(network.work[point]))
    assert network.solve().tolist() == comes


def test_points_that_wait_for_each_other_are_a_circle() -> None:
    network = _network([3, 3, 3], [(0, 1), (1, 2), (2, 1)], [0, 0, 0], random.Random(1))
    with pytest.raises(Circle):
        network.solve()


def _network(times: list[int], pairs: list[tuple[int, int]], lags: list[int], draw: random.Random) -> Network:
    """Points numbered in the order in which they wait for each other, with residuals and transfers of their own."""
    count, edges = len(times), len(pairs)
    nothing, none = np.zeros(count, dtype=np.int64), np.full(edges, -1, dtype=np.int64)
    waits = {b for _, b in pairs}
    return Network(
        time=np.array(times, dtype=np.int64),
        residual=np.array([draw.randint(0, 3) if k in waits else 0 for k in range(count)], dtype=np.int64),
        point_owner=nothing,
        lane=nothing,
        source=np.array([a for a, _ in pairs], dtype=np.int64),
        target=np.array([b for _, b in pairs], dtype=np.int64),
        lag=np.array(lags, dtype=np.int64),
        kind=np.full(edges, Edge.ORDER, dtype=np.int64),
        owner=none,
        row=none,
        work=np.array([draw.randint(0, 4) for _ in times], dtype=np.float64),
        shared=np.zeros(count, dtype=np.bool_),
        context=np.zeros(count, dtype=np.bool_),
        collective=np.full(count, -1, dtype=np.int64),
    )
