"""The simulator by itself: what no device could do never happens, and simple jobs come out as arithmetic says."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from itertools import pairwise

import pytest

from stepscope_workloads.simulate import CAUSES, Fabric, Host, Job, Layer, Model, Simulation, parse, uniform
from stepscope_workloads.simulate.engine import Execution, draw, execute, transfer_of
from stepscope_workloads.simulate.job import MIB, MS, US
from stepscope_workloads.simulate.program import COLLECTIVE, COMM, COMPUTE, Call

QUIET = Job(ranks=2, jitter=0.0, fabric=Fabric(fixed=1 * MS))


def job_with(name: str) -> Job:
    cause = parse(name)
    return Job(ranks=4, sharding="fsdp" if cause.name.startswith("fsdp") else "ddp", steps=2, causes=(cause,))


@pytest.fixture(params=list(CAUSES), scope="module")
def job(request: pytest.FixtureRequest) -> Job:
    return job_with(request.param)


@pytest.fixture(scope="module")
def executions(job: Job) -> list[Execution]:
    return execute(job)


def test_work_on_one_stream_never_overlaps_and_keeps_its_order(executions: list[Execution]) -> None:
    for one in executions:
        for stream in (COMPUTE, COMM):
            mine = [k for k, task in enumerate(one.program.tasks) if task.stream == stream]
            assert all(one.end[a] <= one.start[b] for a, b in pairwise(mine))


def test_nothing_starts_before_its_launch_and_the_latency(job: Job, executions: list[Execution]) -> None:
    for one in executions:
        for task, call in one.calls().items():
            assert one.start[task] >= one.clock[call] + job.host.latency


def test_a_task_starts_only_after_everything_it_waits_for(executions: list[Execution]) -> None:
    for one in executions:
        for k, task in enumerate(one.program.tasks):
            assert all(one.end[earlier] <= one.start[k] for earlier in task.after)


def test_collectives_end_together_one_transfer_after_the_last_rank_arrived(
    job: Job, executions: list[Execution]
) -> None:
    for number, index in enumerate(executions[0].program.collectives):
        task = executions[0].program.tasks[index]
        if task.exchange is None or task.exchange.kind == "broadcast":
            continue
        rows = [(one, one.program.collectives[number]) for one in executions]
        assert {one.end[k] for one, k in rows} == {
            max(one.start[k] for one, k in rows) + transfer_of(job, task)
        }


def test_a_blocking_call_returns_when_its_work_is_over(executions: list[Execution]) -> None:
    for one in executions:
        for k, call in enumerate(one.program.instructions):
            if isinstance(call, Call):
                assert all(one.clock[k + 1] >= one.end[task] for task in call.until)


def test_every_rank_launches_the_same_collectives_in_the_same_order(executions: list[Execution]) -> None:
    assert (
        len({tuple(one.program.tasks[k].exchange for k in one.program.collectives) for one in executions})
        == 1
    )


def test_truth_adds_up(job: Job) -> None:
    for rank in Simulation(job).truth()["ranks"]:
        for step in rank["steps"]:
            assert step["comm_ns"] == sum(
                step[f] for f in ("hidden_backward_ns", "hidden_other_ns", "exposed_ns")
            )
            assert step["exposed_ns"] == sum(step["waterfall_ns"].values())
            assert step["waterfall_ns"]["unattributed"] == 0
            assert step["grad"]["comm_ns"] == sum(
                step["grad"][f] for f in ("hidden_backward_ns", "hidden_other_ns", "exposed_ns")
            )
            assert step["grad"]["excess_ns"] == max(0, step["grad"]["exposed_ns"] - step["grad"]["floor_ns"])


def test_the_same_job_gives_the_same_documents_and_another_seed_gives_others() -> None:
    job = Job(steps=1)
    assert list(Simulation(job).documents()) == list(Simulation(job).documents())
    assert execute(job)[0].end != execute(replace(job, seed=1))[0].end


def test_without_jitter_ranks_are_alike_to_the_nanosecond() -> None:
    first, second = execute(QUIET)
    assert first.start == second.start
    assert first.end == second.end


def test_draws_depend_on_seed_rank_and_kernel_alone_and_stay_within_one() -> None:
    draws = [draw(seed, rank, key) for seed in range(10) for rank in range(10) for key in range(10)]
    assert len(set(draws)) == 1000
    assert -1.0 <= min(draws) < -0.9
    assert 0.9 < max(draws) < 1.0
    assert abs(sum(draws) / 1000) < 0.05


def test_a_stream_rests_between_two_activities_if_it_is_said_to() -> None:
    plain, rested = (execute(replace(QUIET, gap=gap))[0] for gap in (0, 2 * US))
    rests = {}
    for one, gap in ((plain, 0), (rested, 2 * US)):
        mine = [k for k, task in enumerate(one.program.tasks) if task.stream == COMPUTE]
        rests[gap] = min(one.start[b] - one.end[a] for a, b in pairwise(mine))
    assert rests == {0: 0, 2 * US: 2 * US}


def test_taking_a_cause_away_leaves_every_kernels_own_time_as_it_was() -> None:
    job = Job(causes=(parse("wait-edge-in-backward"),))
    times = []
    for one in (job, job.without(job.causes[0])):
        run = execute(one)[1]
        kernels = [k for k, task in enumerate(run.program.tasks) if task.is_compute]
        times.append([run.end[k] - run.start[k] for k in kernels])
    assert times[0] == times[1]


def test_a_well_fed_step_costs_just_its_last_buckets_transfer() -> None:
    truth = Simulation(QUIET).truth()
    assert truth["cost_ns"] == 1 * MS
    for rank in truth["ranks"]:
        for step in rank["steps"]:
            assert step["exposed_ns"] == step["grad"]["floor_ns"] == step["waterfall_ns"]["tail"] == 1 * MS
            assert step["cost_ns"] == 1 * MS


def test_one_bucket_is_exposed_whole() -> None:
    truth = Simulation(replace(QUIET, causes=(parse("bucket-too-large"),))).truth()
    step = truth["ranks"][0]["steps"][1]
    assert step["comm_ns"] == step["exposed_ns"] == step["cost_ns"] == 1 * MS
    assert [one["bytes"] for one in truth["collectives"]] == [4 * 8 * 4_004_000] * 3


def test_a_link_too_slow_queues_all_but_the_last_transfer() -> None:
    """Buckets of one layer are ready 1 ms and a copy apart, and their transfers take 3 ms: the lane never rests."""
    layer = Layer("layer", (100 * US,), (1 * MS,), (1_000_000,))
    model, layers = Model((layer,) * 4), 4
    job = replace(QUIET, model=model, bucket_cap=MIB, fabric=Fabric(fixed=3 * MS))
    apart = 1 * MS + 2 * US + 4 * 1_000_000 // 1000
    step = Simulation(job).truth()["ranks"][0]["steps"][1]
    exposed = layers * 3 * MS - (layers - 1) * apart
    assert step["exposed_ns"] == step["grad"]["floor_ns"] == exposed
    assert step["hidden_backward_ns"] == (layers - 1) * apart
    assert step["waterfall_ns"]["queue"] == exposed - 3 * MS
    assert step["waterfall_ns"]["tail"] == 3 * MS


def test_a_wait_edge_for_every_bucket_blocks_the_device_for_every_transfer() -> None:
    step = Simulation(replace(QUIET, causes=(parse("wait-edge-in-backward"),))).truth()["ranks"][0]["steps"][
        1
    ]
    assert step["waterfall_ns"]["device_blocked"] == 3 * MS
    assert step["waterfall_ns"]["tail"] == 1 * MS
    assert step["cost_ns"] == 4 * MS


def test_collectives_on_the_compute_stream_run_alone() -> None:
    step = Simulation(replace(QUIET, causes=(parse("collective-on-compute-stream"),))).truth()["ranks"][1][
        "steps"
    ][1]
    assert step["comm_ns"] == step["exposed_ns"] == 4 * MS


def test_a_host_that_blocks_in_every_operator_starves_the_device() -> None:
    step = Simulation(replace(QUIET, causes=(parse("blocking-environment"),))).truth()["ranks"][0]["steps"][1]
    assert step["waterfall_ns"]["host_starved"] == 3 * MS
    assert step["waterfall_ns"]["device_blocked"] == 0
    assert step["cost_ns"] == 4 * MS, "although its host starved it, the step would be shorter without a wire"


def test_contention_makes_kernels_longer_by_its_factor_while_a_collective_runs() -> None:
    job = replace(QUIET, causes=(parse("contention:factor=1.5"),))
    step = Simulation(job).truth()["ranks"][0]["steps"][1]
    assert step["hidden_backward_ns"] == 3 * MS
    assert step["contention_ns"] == pytest.approx(3 * MS * (1 - 1 / 1.5), abs=10)
    assert step["cost_ns"] == 1 * MS  # kernels as long as measured: contention is apart


def test_one_hardware_queue_holds_compute_back_behind_a_collective_that_waits_for_the_wire() -> None:
    """Four buckets are ready two layers apart and take longer: the second and third hold up what was launched after them."""
    job = replace(QUIET, fabric=Fabric(fixed=4 * MS))
    step, queued = (
        Simulation(replace(job, causes=causes)).truth()["ranks"][0]["steps"][1]
        for causes in ((), (parse("single-hardware-queue"),))
    )
    copies = (2 * US + 4 * 4_000_000 // 1000) + (2 * US + 4 * 4_000 // 1000)
    assert step["waterfall_ns"]["device_blocked"] == 0
    assert queued["waterfall_ns"]["device_blocked"] == 2 * (4 * MS - 2 * (2 * 800 * US + copies))


def test_one_hardware_queue_costs_where_a_large_bucket_comes_first() -> None:
    job = replace(
        QUIET,
        ranks=4,
        model=uniform(head=40_000_000),
        fabric=Fabric(),
        causes=(parse("single-hardware-queue"),),
    )
    truth = Simulation(job).truth()
    assert truth["causes"][0]["price_ns"] > 0.1 * truth["step_ns"]


@pytest.mark.parametrize("settings", ["phase=backward,by=compute", "phase=forward,by=compute"])
def test_a_straggler_costs_the_others_what_it_took_longer(settings: str) -> None:
    job = replace(QUIET, ranks=4, causes=(parse(f"straggler:rank=2,ms=16,{settings}"),))
    truth = Simulation(job).truth()
    assert truth["causes"][0]["price_ns"] == pytest.approx(16 * MS, rel=0.001)
    assert truth["stragglers"][0]["rank"] == 2
    first = truth["collectives"][0]
    assert first["last_rank"] == 2
    assert first["wait_ns"][2] == 0
    assert first["wait_ns"][0] == first["wait_ns"][1] == first["wait_ns"][3] > 0


def test_a_rank_that_waits_for_its_batch_is_late_by_that() -> None:
    job = replace(QUIET, causes=(parse("input-skew:rank=1,ms=7"),))
    truth = Simulation(job).truth()
    assert truth["causes"][0]["price_ns"] == 7 * MS
    assert truth["collectives"][4]["wait_ns"] == [7 * MS, 0]


def test_a_late_parameter_lets_no_bucket_start_before_the_end_of_backward() -> None:
    step = Simulation(replace(QUIET, causes=(parse("late-parameter"),))).truth()["ranks"][0]["steps"][1]
    assert step["hidden_backward_ns"] == 0
    assert step["exposed_ns"] == 4 * MS


def test_a_host_that_runs_ahead_is_held_back_by_the_queue_of_launches() -> None:
    ahead = Job(jitter=0.0, steps=6, host=Host(reads_loss=False))
    held = replace(ahead, host=replace(ahead.host, run_ahead=10))
    walls = [
        [step["wall_ns"] for step in Simulation(job).truth()["ranks"][0]["steps"]] for job in (ahead, held)
    ]
    steps = [Simulation(job).truth()["ranks"][0]["steps"][3]["step_ns"] for job in (ahead, held)]
    assert max(walls[0][1:5]) < 0.2 * steps[0]
    assert walls[1][3] == pytest.approx(steps[1], rel=0.01)


def test_fsdp_prefetch_hides_gathers_that_are_exposed_without_it() -> None:
    job = replace(QUIET, sharding="fsdp", fabric=Fabric(fixed=500 * US))
    exposed = {
        causes: Simulation(replace(job, causes=causes)).truth()["ranks"][0]["steps"][1]["exposed_ns"]
        for causes in ((), (parse("fsdp-prefetch"),))
    }
    assert exposed[()] == 2 * 500 * US  # the first gather and the last scatter
    assert (
        exposed[(parse("fsdp-prefetch"),)] == 24 * 500 * US
    )  # all: a gather stands behind the scatter before


def test_the_ring_takes_its_hops_and_its_share_of_the_bytes() -> None:
    ring = Fabric(alpha=10 * US, gb_per_s=50.0)
    assert ring.transfer("all_reduce", 100_000_000, 8) == 14 * 10 * US + 2 * 7 * 100_000_000 // (8 * 50)
    assert ring.transfer("all_gather", 100_000_000, 8) == 7 * 10 * US + 7 * 100_000_000 // (8 * 50)
    assert ring.transfer("broadcast", 100_000_000, 8) == 7 * 10 * US + 100_000_000 // 50


def test_buckets_close_once_they_have_reached_their_cap() -> None:
    job = Job(model=uniform(4, parameters=1_000_000), bucket_cap=6 * MIB, first_bucket=MIB, steps=1)
    sizes = [one["bytes"] // 4 for one in Simulation(job).truth()["collectives"]]
    assert sizes == [1_001_000, 2_002_000, 1_001_000]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("nix", "no cause is called 'nix'; there are host-sync"),
        ("straggler:speed=3", "straggler has no 'speed'; it has rank, ms, phase, by"),
        ("straggler:rank=x", "straggler: rank=x is no int"),
        ("host-sync:where=nowhere", "host-sync: where is one of forward, between, backward, not 'nowhere'"),
    ],
)
def test_a_cause_that_makes_no_sense_is_said_to(text: str, message: str) -> None:
    with pytest.raises(ValueError, match="^" + message.replace("'", ".")):
        parse(text)


def test_the_simulator_shares_no_code_with_the_analyser_and_needs_no_torch() -> None:
    code = (
        "import sys, stepscope_workloads.simulate.__main__\n"
        "print({'torch', 'numpy', 'stepscope'} & {name.split('.')[0] for name in sys.modules})"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


def test_only_collectives_are_collectives() -> None:
    one = execute(QUIET)[0]
    assert {task.exchange is not None for task in one.program.tasks if task.kind == COLLECTIVE} == {True}
    assert {task.exchange for task in one.program.tasks if task.kind != COLLECTIVE} == {None}
