"""The replay of CPU steps: who waits for what under gloo, and what a step is without it. Times in us unless they say ms."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from build_trace import BACKWARD, MAIN, TraceBuilder
from stepscope.ranks.pairing import pair
from stepscope.replay.change import Change, Segment
from stepscope.replay.graph import StepGraph, build
from stepscope.trace.classify import classify
from stepscope.trace.reader import read

ELEMENTS = 1_000_000
COPY = "torch.distributed.ddp.reducer::copy_bucket_to_grad"
NODE = BACKWARD + "AddmmBackward0"
ACCUMULATE = BACKWARD + "torch::autograd::AccumulateGrad"


def graph(folder: Path, *traces: TraceBuilder) -> StepGraph:
    recordings = [
        classify(read(trace.write(folder / f"rank{rank}.json"))) for rank, trace in enumerate(traces)
    ]
    built = build(recordings, pair(recordings), 5)
    assert built is not None
    return built


def us(times: Mapping[int, float]) -> list[float]:
    return [round(times[index] / 1e3, 3) for index in sorted(times)]


def ddp_step(rank: int, *, arrives: float = 0, leaves: float = 9000, copies: bool = True) -> TraceBuilder:
    """Forward 0-2000, backward 2000-6000 with its bucket launched at 4000, a wait, then the optimizer for 1000.

    arrives: how much later than the launch the transfer starts. leaves: when it ends; the thread goes on 50 later.
    """
    trace = TraceBuilder(rank=rank, world_size=2, backend="gloo")
    trace.step(5, 0, leaves + 1150)
    trace.cpu_op("aten::addmm", 0, 2000)
    trace.cpu_op(NODE, 2000, 2000)
    trace.cpu_op("aten::mm", 2010, 1980)
    trace.cpu_op(ACCUMULATE, 4000, 20)
    trace.gloo("all_reduce", 4010 + arrives, leaves - 4010 - arrives, elements=ELEMENTS, launched=4005)
    trace.cpu_op(NODE, 4020, 1980)
    trace.cpu_op("aten::mm", 4030, 1960)
    if copies:
        trace.cpu_op(COPY, leaves + 50, 100, dims=[[ELEMENTS]], types=["float"])
    trace.optimizer(leaves + 150, 1000)
    trace.cpu_op("aten::add_", leaves + 150, 1000)
    return trace


def test_a_replay_that_changes_nothing_is_the_measured_step(tmp_path: Path) -> None:
    built = graph(tmp_path, ddp_step(0), ddp_step(1, arrives=700))
    assert us(built.replay().wall) == [10150, 10150]
    assert us(built.measured) == [10150, 10150]
    assert built.impossible == 0


def test_without_transfer_the_thread_goes_on_as_soon_as_it_would_wait(tmp_path: Path) -> None:
    """Backward is over at 6000; waking (50), the copy (100) and the optimizer (1000) are left."""
    built = graph(tmp_path, ddp_step(0), ddp_step(1))
    assert us(built.cost()) == [3000, 3000]


def test_half_the_transfer_time_leaves_half_the_transfer(tmp_path: Path) -> None:
    built = graph(tmp_path, ddp_step(0), ddp_step(1))
    half = built.replay(Change(transfers=dict.fromkeys(built.numbers, 0.5)))
    assert us(half.wall) == [6505 + 1150, 6505 + 1150]


def test_waiting_for_the_other_rank_is_no_transfer_and_stays(tmp_path: Path) -> None:
    """Rank 1 starts its part 3990 late, at 8000: without transfer both leave then, and only 1000 of the wait goes."""
    built = graph(tmp_path, ddp_step(0), ddp_step(1, arrives=3990))
    assert us(built.cost()) == [1000, 1000]


def test_a_recording_that_is_ignored_is_not_waited_for(tmp_path: Path) -> None:
    """Rank 0 moves its 1000 of data from 4010 on, hidden behind backward; rank 1 itself is as late as it was."""
    built = graph(tmp_path, ddp_step(0), ddp_step(1, arrives=3990))
    assert us(built.replay(Change(ignored=frozenset({1}))).wall) == [6000 + 1150, 8000 + 1150]


def test_without_the_gradients_copies_the_end_of_backward_waits(tmp_path: Path) -> None:
    built = graph(tmp_path, ddp_step(0, copies=False), ddp_step(1, copies=False))
    assert us(built.cost()) == [3000, 3000]


def test_a_bucket_that_was_not_waited_for_is_if_its_transfer_grows(tmp_path: Path) -> None:
    """The transfer, 4010 to 5000, was hidden; five times as long it ends at 8960, and the copy comes 2950 later."""
    trace = [ddp_step(rank, leaves=9000) for rank in range(2)]
    for one in trace:
        span = next(event for event in one.events if event["name"] == "gloo:all_reduce")
        span["dur"] = 990
        later = {COPY: 6010, "aten::add_": 6110, "Optimizer.step#SGD.step": 6110}
        for event in one.events:
            event["ts"] = later.get(event["name"], event["ts"])
        next(event for event in one.events if event["name"] == "ProfilerStep#5")["dur"] = 7110
    built = graph(tmp_path, *trace)
    assert us(built.cost()) == [0, 0]
    slower = built.replay(Change(transfers=dict.fromkeys(built.numbers, 5.0)))
    assert us(slower.wall) == [7110 + 2950, 7110 + 2950]


def two_at_once(rank: int) -> TraceBuilder:
    """Two transfers of one link: alone until 2000, side by side until 6000, the second alone until 7000."""
    trace = TraceBuilder(rank=rank, world_size=2, backend="gloo")
    trace.step(5, 0, 8000)
    trace.cpu_op(NODE, 0, 3000)
    trace.cpu_op("aten::mm", 0, 3000)
    trace.gloo("all_reduce", 1000, 5000, elements=ELEMENTS, launched=990)
    trace.gloo("all_reduce", 2000, 5000, elements=ELEMENTS + 1, launched=1990, worker=1)
    trace.cpu_op("aten::add_", 7000, 1000)
    return trace


def test_two_transfers_at_once_share_the_link(tmp_path: Path) -> None:
    """Each is 3000 of work. At half of it the first ends at 3000 + 500, with 1000 left to the second: 4000 in all."""
    built = graph(tmp_path, two_at_once(0), two_at_once(1))
    assert us(built.replay().wall) == [8000, 8000]
    half = built.replay(Change(transfers=dict.fromkeys(built.numbers, 0.5)))
    assert sorted({round(end / 1e3, 3) for end in half.ends.values()}) == [3000, 4000]
    assert us(half.wall) == [5000, 5000]


def test_a_worker_thread_runs_one_transfer_after_the_other(tmp_path: Path) -> None:
    traces = []
    for rank in range(2):
        trace = TraceBuilder(rank=rank, world_size=2, backend="gloo")
        trace.step(5, 0, 8000)
        trace.cpu_op(NODE, 0, 500)
        trace.cpu_op("aten::mm", 0, 500)
        trace.gloo("all_reduce", 510, 1990, elements=ELEMENTS, launched=505)
        trace.gloo("all_reduce", 2500, 4500, elements=ELEMENTS + 1, launched=515)
        trace.cpu_op("aten::add_", 7000, 1000)
        traces.append(trace)
    built = graph(tmp_path, *traces)
    double = built.replay(Change(transfers=dict.fromkeys(built.numbers, 2.0)))
    assert us(double.wall) == [510 + 2 * 1990 + 2 * 4500 + 1000] * 2


def waiting_loop(rank: int) -> TraceBuilder:
    """Two reductions by hand after backward, at 1100 and 3200, each waited for at once and copied for 100."""
    trace = TraceBuilder(rank=rank, world_size=2, backend="gloo")
    trace.step(5, 0, 6100)
    trace.cpu_op(NODE, 0, 1000)
    trace.cpu_op("aten::mm", 0, 1000)
    for number, at in enumerate((1100, 3200)):
        trace.cpu_op("aten::div_", at - 100, 90)
        trace.gloo("all_reduce", at + 10, 1880, elements=ELEMENTS + number, launched=at)
        trace.cpu_op("aten::copy_", at + 1900, 100)
    trace.cpu_op("aten::add_", 5200, 900)
    return trace


def test_a_collective_that_is_waited_for_at_once_costs_its_transfer(tmp_path: Path) -> None:
    built = graph(tmp_path, waiting_loop(0), waiting_loop(1))
    assert us(built.cost()) == [2 * 1880, 2 * 1880]


def test_a_wait_that_is_taken_out_lets_the_thread_go_on(tmp_path: Path) -> None:
    """The second reduction is launched while the first runs, follows it at 2990 and ends at 4870, 220 earlier."""
    built = graph(tmp_path, waiting_loop(0), waiting_loop(1))
    first = {index: min(row for owner, row in built.numbers if owner == index) for index in range(2)}
    free = built.replay(Change(unwaited=frozenset(first.items())))
    assert us(free.wall) == [5880, 5880]


def test_a_host_segment_that_is_cut_shortens_the_step_by_what_it_did(tmp_path: Path) -> None:
    """1000 of forward on both ranks go, and the transfer starts so much earlier."""
    built = graph(tmp_path, ddp_step(0), ddp_step(1))
    cuts = tuple(Segment(index, _main(), 500_000, 1_500_000) for index in range(2))
    assert us(built.replay(Change(segments=cuts)).wall) == [9150, 9150]
    kept = tuple(Segment(index, _main(), 500_000, 1_500_000, keep=0.5) for index in range(2))
    assert us(built.replay(Change(segments=kept)).wall) == [9650, 9650]


def test_a_straggler_gains_nothing_for_others_than_they_waited(tmp_path: Path) -> None:
    """Rank 1 alone is 1000 quicker: rank 0's data still arrives at 4010, so the transfer ends when it did."""
    built = graph(tmp_path, ddp_step(0), ddp_step(1))
    faster = built.replay(Change(segments=(Segment(1, _main(), 500_000, 1_500_000),)))
    assert us(faster.wall) == [10150, 10150]


def test_a_late_launch_is_priced_by_launching_when_ready(tmp_path: Path) -> None:
    """At 3000 in the place of 4005: the transfer of 4990 and the step end 1005 earlier."""
    built = graph(tmp_path, ddp_step(0), ddp_step(1))
    early = built.replay(Change(launched=dict.fromkeys(built.numbers, 3_000_000)))
    assert us(early.wall) == [9145, 9145]


def _main() -> int:
    return MAIN * (1 << 33) + MAIN


def test_one_rank_alone_is_replayed_without_the_others(tmp_path: Path) -> None:
    built = graph(tmp_path, ddp_step(0))
    assert us(built.cost()) == [3000]


def test_a_step_that_nobody_recorded_has_no_graph(tmp_path: Path) -> None:
    recordings = [classify(read(ddp_step(0).write(tmp_path / "r.json")))]
    assert build(recordings, pair(recordings), 6) is None


@pytest.mark.parametrize("clock", [-40_000.0, 250_000.0])
def test_a_host_whose_clock_is_ahead_is_laid_on_the_others_clock(tmp_path: Path, clock: float) -> None:
    here, there = ddp_step(0), ddp_step(1, arrives=3990)
    here.header["host_name"], there.header["host_name"] = "a", "b"
    for event in there.events:
        event["ts"] += clock + 50_000
    for event in here.events:
        event["ts"] += 50_000
    built = graph(tmp_path, here, there)
    assert us(built.cost()) == [1000, 1000]


@pytest.mark.parametrize("late", [100, 10_000], ids=["a little late", "held up for as long as the step"])
def test_a_workers_event_that_ends_after_the_thread_went_on_was_over_by_then(
    tmp_path: Path, late: float
) -> None:
    """Events end after 9050, when the thread resumed and DDP's copies began: the transfer was over, the wait costs all 3050."""
    traces = [ddp_step(rank) for rank in range(2)]
    for trace in traces:
        next(event for event in trace.events if event["name"] == "gloo:all_reduce")["dur"] = (
            9050 + late - 4010
        )
    built = graph(tmp_path, *traces)
    assert us(built.replay().wall) == [10150, 10150]
    assert us(built.cost()) == [3050, 3050]
