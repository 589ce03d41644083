"""What the simulator writes is what Kineto writes."""

from __future__ import annotations

import gzip
import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from stepscope_workloads.simulate import Clock, Job, Simulation, parse, simulate, truth, write
from stepscope_workloads.simulate.__main__ import main
from stepscope_workloads.simulate.job import MS, US

Event = dict[str, Any]

BACKWARD = "autograd::engine::evaluate_function: "


def complete(job: Job, rank: int = 0) -> list[Event]:
    return [event for event in simulate(job)[rank]["traceEvents"] if event["ph"] == "X"]


def named(events: list[Event], name: str) -> list[Event]:
    return [event for event in events if event["name"] == name]


def holders(events: list[Event], inner: Event) -> list[str]:
    """Names of the host spans around an event, outermost first."""
    around = [
        event
        for event in events
        if event["tid"] == inner["tid"]
        and event is not inner
        and event["ts"] <= inner["ts"]
        and inner["ts"] + inner["dur"] <= event["ts"] + event["dur"]
    ]
    return [event["name"] for event in sorted(around, key=lambda event: (event["ts"], -event["dur"]))]


def real_events(file: Path) -> list[Event]:
    events: list[Event] = json.loads(gzip.decompress(file.read_bytes()))["traceEvents"]
    return events


def test_args_and_fields_are_those_of_a_real_trace(shared: Path) -> None:
    """A100 under NCCL 2.17 recorded all but `Seq`, which newer torch adds, and the runtime's id of a shape."""
    real: dict[str, set[str]] = defaultdict(set)
    fields: dict[str, set[str]] = defaultdict(set)
    for event in real_events(shared / "traces" / "hta_resnet_ddp_a100" / "nccl_data.json.gz"):
        if event["ph"] == "X":
            real[event["cat"]] |= set(event["args"])
            fields[event["cat"]] |= set(event)
    newer = {"Seq", "Input Dims", "Input type"}
    for event in complete(Job(steps=1)):
        assert set(event["args"]) - newer <= real[event["cat"]], event
        assert set(event) == fields[event["cat"]]


def test_names_are_those_of_a_real_trace(shared: Path) -> None:
    """Every category and runtime call of the simulator, and DDP's operators by their names."""
    real = real_events(shared / "traces" / "hta_resnet_ddp_a100" / "nccl_data.json.gz")
    known = {event["name"] for event in real if event["ph"] == "X"}
    ours = complete(Job(steps=1))
    calls = {event["name"] for event in ours if event["cat"] == "cuda_runtime"}
    assert calls - known == {"cudaStreamSynchronize"}  # that run never read its loss
    for name in (
        "DistributedDataParallel.forward",
        BACKWARD + "torch::autograd::AccumulateGrad",
        "torch::distributed::reducer::mul_out",
        "c10d::allreduce_",
        "record_param_comms",
        "nccl:all_reduce",
    ):
        assert name in known
        assert named(ours, name)
    assert {event["ph"] for event in simulate(Job(steps=1))[0]["traceEvents"]} <= {
        event["ph"] for event in real
    }


def test_every_device_activity_has_one_launch_that_began_before_it() -> None:
    events = complete(Job())
    calls = {event["args"]["correlation"]: event for event in events if event["cat"] == "cuda_runtime"}
    device = [event for event in events if event["cat"] in ("kernel", "gpu_memcpy")]
    assert len({event["args"]["correlation"] for event in device}) == len(device)
    for event in device:
        launch = calls[event["args"]["correlation"]]
        assert launch["ts"] < event["ts"]
        assert launch["args"]["External id"] == event["args"]["External id"]


def test_spans_of_a_thread_nest() -> None:
    by_thread = defaultdict(list)
    for event in complete(Job(causes=(parse("host-sync"), parse("sync-batch-norm")), with_stack=True)):
        if event["cat"] in ("cpu_op", "user_annotation", "python_function", "cuda_runtime"):
            by_thread[event["tid"]].append(
                (round(event["ts"] * 1000), round((event["ts"] + event["dur"]) * 1000))
            )
    assert len(by_thread) == 2
    for spans in by_thread.values():
        open_ends: list[int] = []
        for start, end in sorted(spans, key=lambda span: (span[0], -span[1])):
            while open_ends and open_ends[-1] <= start:
                open_ends.pop()
            assert not open_ends or end <= open_ends[-1]
            open_ends.append(end)


def test_a_bucket_is_reduced_inside_the_last_of_its_accumulate_grads() -> None:
    events = complete(Job(steps=1))
    launches = named(events, "cudaLaunchKernelExC")
    assert len(launches) == 4
    for launch in launches:
        assert holders(events, launch) == [
            BACKWARD + "torch::autograd::AccumulateGrad",
            "c10d::allreduce_",
            "record_param_comms",
            "nccl:all_reduce",
        ]
        assert launch["tid"] != launch["pid"]  # the autograd thread's


def test_a_collective_says_what_it_moves_on_the_operator_and_on_the_kernel() -> None:
    document = simulate(Job(ranks=4, steps=1))[2]
    events = [event for event in document["traceEvents"] if event["ph"] == "X"]
    kernels = [event for event in events if "Collective name" in event["args"] and event["cat"] == "kernel"]
    operators = {event["args"]["External id"]: event for event in named(events, "record_param_comms")}
    assert [kernel["args"]["Seq"] for kernel in kernels] == [1, 2, 3, 4]
    for kernel in kernels:
        told = operators[kernel["args"]["External id"]]["args"]
        assert kernel["args"]["In msg nelems"] == told["In msg nelems"] == 8_008_000
        assert kernel["args"]["Process Group Ranks"] == "[0, 1, 2, 3]"
        assert kernel["args"]["Group size"] == document["distributedInfo"]["world_size"] == 4
    assert document["distributedInfo"]["rank"] == 2
    assert document["host_name"] == "node0"


def test_an_item_in_backward_is_a_copy_and_a_synchronise_with_its_source_line() -> None:
    events = complete(Job(steps=1, with_stack=True, causes=(parse("host-sync:where=backward"),)))
    first = min(named(events, "cudaStreamSynchronize"), key=lambda event: event["ts"])
    assert holders(events, first) == [
        BACKWARD + "AddmmBackward0",
        "train.py(52): gradient_hook",
        "<built-in method item of Tensor object at 0x7f0000000000>",
        "aten::item",
        "aten::_local_scalar_dense",
    ]
    assert first["dur"] > 1000
    assert (
        len(named(events, "Memcpy DtoH (Device -> Pageable)")) == 2
    )  # the other is the loop's own, after the step


def test_a_pageable_copy_blocks_the_call_that_made_it() -> None:
    events = complete(Job(steps=1, causes=(parse("pageable-copy:ms=3"),)))
    copy = named(events, "Memcpy HtoD (Pageable -> Device)")[0]
    assert copy["dur"] == 3000
    assert named(events, "cudaMemcpyAsync")[0]["dur"] >= 3000
    assert copy["args"]["stream"] == 7


def test_sync_rows_tell_which_stream_waits_for_which_when_they_are_asked_for() -> None:
    job = Job(steps=1, causes=(parse("wait-edge-in-backward"),))
    assert not [event for event in complete(job) if event["cat"] == "cuda_sync"]
    events = complete(Job(steps=1, causes=job.causes, sync_events=True))
    waits = named([event for event in events if event["cat"] == "cuda_sync"], "Stream Wait Event")
    edges = [(wait["args"]["stream"], wait["args"]["wait_on_stream"]) for wait in waits]
    assert edges == [(20, 7), (7, 20)] * 4 + [(7, 20)] * 4
    records = {event["args"]["correlation"] for event in named(events, "cudaEventRecord")}
    assert {wait["args"]["wait_on_cuda_event_record_corr_id"] for wait in waits} <= records


def test_collectives_on_the_compute_stream_are_written_on_its_row() -> None:
    events = complete(Job(steps=1, causes=(parse("collective-on-compute-stream"),)))
    assert {e["tid"] for e in events if e["cat"] == "kernel" and e["name"].startswith("nccl")} == {7}


def test_the_devices_copy_of_a_step_leaves_backward_out() -> None:
    events = complete(Job(steps=2))
    twin = next(
        event
        for event in named(events, "ProfilerStep#10")
        if event["cat"] == "gpu_user_annotation" and event["tid"] == 7
    )
    assert twin["ts"] <= named(events, "ampere_sgemm_128x64_tn")[0]["ts"]
    reads = named(events, "nccl:all_reduce")
    assert {event["cat"] for event in reads} == {"user_annotation", "gpu_user_annotation"}


def test_a_hosts_clock_shifts_everything_that_its_ranks_recorded() -> None:
    plain, shifted = (
        simulate(Job(ranks=2, ranks_per_host=1, steps=1, clocks=clocks))[1]
        for clocks in ((), (Clock(), Clock(offset=-3 * MS, drift=10.0)))
    )
    pairs = list(zip(plain["traceEvents"], shifted["traceEvents"], strict=True))
    assert {event["name"] for event, _ in pairs} >= {"Record Window End", "ProfilerStep#10"}
    for before, after in pairs:
        true = round((before["ts"] - 3.6e9) * 1000)
        assert round((after["ts"] - before["ts"]) * 1000) == -3 * MS + round(true * 1e-5)
    assert plain["baseTimeNanoseconds"] == shifted["baseTimeNanoseconds"]


def test_files_are_named_as_tensorboard_expects_and_truth_lies_beside_them(tmp_path: Path) -> None:
    job = Job(ranks=3, steps=1)
    paths = list(write(Simulation(job), tmp_path / "run"))
    assert [path.name.split(".")[0] for path in paths] == ["rank0", "rank1", "rank2", "truth"]
    assert all(path.name.endswith(".pt.trace.json.gz") and path.name.count(".") == 5 for path in paths[:3])
    assert json.loads(gzip.decompress(paths[1].read_bytes())) == simulate(job)[1]
    assert json.loads(paths[3].read_text("utf-8")) == truth(job)
    with pytest.raises(FileExistsError, match="is not empty: name a new folder"):
        next(write(Simulation(job), tmp_path / "run"))


def test_the_command_writes_what_its_flags_describe(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"
    flags = "--ranks 4 --steps 2 --layers 4 --kernels 1 --forward-us 100 --backward-us 250 --parameters 50000"
    flags += " --transfer-us 70 --bucket-cap-mb 0.1 --ranks-per-host 2 --clock 0 --clock 500,2.5 --jitter 0"
    flags += " --cause straggler:rank=3,ms=2.5,phase=backward --cause extra-collectives:count=1"
    assert main([*flags.split(), "--out", str(out)]) == 0
    assert capsys.readouterr().out == f"Wrote 4 traces and truth.json to {out}\n"
    told = json.loads((out / "truth.json").read_text("utf-8"))
    assert {one["wire_ns"] for one in told["collectives"]} == {70 * US}
    assert told["clocks"][1] == {"host": "node1", "offset_ns": 500 * US, "drift_ppm": 2.5}
    assert [one["cause"] for one in told["causes"]] == ["straggler", "extra-collectives"]
    assert told["stragglers"][0]["rank"] == 3


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ("--cause nix", "no cause is called 'nix'; there are "),
        ("--ranks 0", "a job needs at least one rank, one step and one layer"),
        (
            "--sharding fsdp --cause contention",
            "contention is simulated for ddp only: prefetched gathers do not wait",
        ),
    ],
)
def test_a_job_that_makes_no_sense_is_refused_in_one_line(
    flags: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*flags.split(), "--out", str(tmp_path / "run")]) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"simulate: error: {message}")
    assert error.count("\n") == 1
    assert not (tmp_path / "run").exists()
