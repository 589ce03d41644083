"""Detectors of causes that need a GPU, on steps laid out by hand: what they price, and the look-alikes they leave alone.

A step of two layers: forward, a backward of two kernels on the engine's thread, one bucket after each, the optimizer.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from build_trace import AUTOGRAD, MAIN, TraceBuilder
from device_cases import built, simulated
from stepscope.audit.causes import (
    blocking_environment,
    compiled_backward,
    contention,
    find_causes,
    fsdp_prefetch,
    grad_clip_sync,
    host_sync,
    launch_bound,
    pageable_copy,
    single_hardware_queue,
    wait_edge_on_device,
)
from stepscope.audit.result import Finding
from stepscope_workloads.simulate import Job, Simulation, parse

MIB_OF_FLOATS = 1 << 18


def one(found: list[Finding]) -> Finding:
    assert len(found) == 1, found
    return found[0]


def step(trace: TraceBuilder, number: int = 5, at: float = 0, read_at: float | None = None) -> TraceBuilder:
    """10 ms on the host: kernels of 1 ms back to back from 0.1 ms on; the buckets take 0.5 ms each.

    read_at: forward's third kernel is launched only after a read of what is over then.
    """
    trace.step(number, at, 10_000)
    late = 0.0 if read_at is None else 1000.0
    for k in range(4):
        launched = at + 50 + 20 * k
        trace.kernel(
            "gemm",
            launched=launched + late * (k >= 2) * 3,
            start=at + 100 + 1000 * k + late * (k >= 2),
            duration=1000,
        )
    for k in range(2):
        start = at + 4200 + late + 1000 * k
        trace.backward("MmBackward0", at + 4100 + late + 100 * k, 60)
        trace.kernel(
            "gemm_backward", launched=at + 4110 + late + 100 * k, start=start, duration=1000, thread=AUTOGRAD
        )
        trace.accumulate_grad(at + 4162 + late + 100 * k, 30)
        trace.collective(
            "allreduce",
            launched=at + 4170 + late + 100 * k,
            start=start + 1005,
            duration=500,
            elements=MIB_OF_FLOATS,
            sequence=number * 2 + k,
        )
    trace.optimizer(at + 4500 + late, 100)
    trace.kernel("adamw", launched=at + 4550 + late, start=at + 6720 + late, duration=500)
    return trace


def read(
    trace: TraceBuilder, at: float, over: float, *, operator: str = "aten::item", thread: int = MAIN
) -> None:
    """The host reads a value: it is blocked from `at` until `over`."""
    trace.cpu_op(operator, at, over - at, thread=thread)
    trace.cpu_op("aten::_local_scalar_dense", at + 1, over - at - 2, thread=thread)
    way = "Memcpy DtoH (Device -> Pageable)"
    trace.memcpy(way, launched=at + 2, start=over - 20, duration=2, thread=thread)
    trace.runtime("cudaStreamSynchronize", at + 6, over - at - 9, thread=thread)


def test_a_read_in_forward_costs_the_gap_that_it_leaves_on_the_device(tmp_path: Path) -> None:
    """The host is blocked until 2.12 ms and launches on a millisecond after the device ran dry."""
    trace = step(TraceBuilder(), read_at=2100)
    read(trace, 1000, 2140)
    found = one(host_sync.detect(built([trace], tmp_path)))
    assert found.cause == "host-sync"
    assert found.evidence[0].startswith(
        "aten::item in forward: 1 a step on rank 0, the host blocked for 1.1 ms each"
    )
    assert found.confidence.startswith("high")


def test_an_item_of_a_cpu_tensor_is_no_finding(tmp_path: Path) -> None:
    """It waits for nothing: no copy to the host and no synchronise inside it."""
    trace = step(TraceBuilder())
    for k in range(50):
        trace.cpu_op("aten::item", 200 + 10 * k, 5)
        trace.cpu_op("aten::_local_scalar_dense", 201 + 10 * k, 3)
    assert host_sync.detect(built([trace], tmp_path)) == []


def test_what_ddp_reads_itself_inside_accumulate_grad_is_no_finding(tmp_path: Path) -> None:
    trace = step(TraceBuilder(), read_at=2100)
    read(trace, 5163, 5190, thread=AUTOGRAD)
    assert host_sync.detect(built([trace], tmp_path)) == []


def test_a_fused_optimizers_read_of_its_step_is_no_finding(tmp_path: Path) -> None:
    trace = step(TraceBuilder())
    read(trace, 4505, 4545)
    case = built([trace], tmp_path)
    assert host_sync.detect(case) == grad_clip_sync.detect(case) == []


def test_the_profilers_one_synchronise_is_no_finding(tmp_path: Path) -> None:
    trace = step(TraceBuilder(), read_at=2100)
    trace.runtime("cudaDeviceSynchronize", 1000, 1110)
    assert host_sync.detect(built([trace], tmp_path)) == []


def test_a_synchronise_of_the_script_in_every_step_is_one(tmp_path: Path) -> None:
    trace = TraceBuilder()
    for number in (5, 6):
        at = 10_000.0 * (number - 5)
        step(trace, number, at, read_at=2100)
        trace.runtime("cudaDeviceSynchronize", at + 1000, 1110)
    found = one(host_sync.detect(built([trace], tmp_path)))
    assert found.evidence[0].startswith("the script's own synchronise in forward: 1 a step on rank 0")


def test_a_read_at_the_end_of_a_step_is_left_to_the_loop(tmp_path: Path) -> None:
    trace = step(TraceBuilder())
    read(trace, 4700, 7300)
    case = built([trace], tmp_path)
    assert host_sync.detect(case) == grad_clip_sync.detect(case) == []


@pytest.mark.parametrize(
    ("operator", "says"),
    [
        ("aten::_foreach_norm", "the gradients' norm"),
        ("aten::_amp_foreach_non_finite_check_and_unscale_", "the scaler's check"),
    ],
)
def test_a_read_between_backward_and_the_optimizer_says_whose_it_is(
    tmp_path: Path, operator: str, says: str
) -> None:
    trace = TraceBuilder()
    step(trace)
    trace.cpu_op(operator, 4320, 20)
    read(trace, 4350, 6740)
    for event in trace.events:  # the optimizer comes after the read, and its kernel a launch later
        if event["name"].startswith("Optimizer.step"):
            event["ts"] = 6900
        if event["name"] == "cudaLaunchKernel" and event["ts"] == 4550:
            event["ts"] = 6950
        if event["name"] == "adamw":
            event["ts"] = 6960
    found = one(grad_clip_sync.detect(built([trace], tmp_path)))
    assert found.confidence.startswith(f"high: {says}")
    assert found.cause == "grad-clip-sync"


def test_a_kernel_launched_late_once_does_not_make_a_job_launch_bound(tmp_path: Path) -> None:
    assert launch_bound.detect(built([step(TraceBuilder(), read_at=2100)], tmp_path)) == []


def test_blocking_launches_are_known_by_calls_that_outlast_their_kernels(tmp_path: Path) -> None:
    trace = TraceBuilder()
    trace.step(5, 0, 10_000)
    for k in range(6):
        trace.kernel(
            "gemm", launched=100 + 1200 * k, launch_duration=1020, start=110 + 1200 * k, duration=1000
        )
    environment = {"environment": {"CUDA_LAUNCH_BLOCKING": "1"}}
    found = one(blocking_environment.detect(built([trace], tmp_path, environment)))
    assert found.confidence.startswith("high: the run had CUDA_LAUNCH_BLOCKING=1")
    assert found.evidence == [
        "6 launch calls a step, at least 90% of all, returned only when their kernel was over"
    ]


def test_the_runs_environment_raises_the_confidence_of_a_blocking_wait(tmp_path: Path) -> None:
    simulation = Simulation(Job(ranks=2, causes=(parse("blocking-environment"),)))
    known = simulated(simulation, tmp_path, {"environment": {"TORCH_NCCL_BLOCKING_WAIT": "1"}})
    assert one(blocking_environment.detect(known)).confidence.startswith(
        "high: the run had TORCH_NCCL_BLOCKING_WAIT=1"
    )


def test_one_compiled_graph_with_all_buckets_after_it_is_priced_by_an_even_spread(tmp_path: Path) -> None:
    """8 ms of backward, then four buckets of 1 ms each: spread evenly, three of them are hidden."""
    traces = [compiled(rank) for rank in range(2)]
    found = one(compiled_backward.detect(built(traces, tmp_path)))
    assert found.cost_ms == pytest.approx(3.0, abs=0.05)
    assert found.ranks == [0, 1]


def test_two_graphs_are_ddp_optimizers_work_and_no_finding(tmp_path: Path) -> None:
    assert compiled_backward.detect(built([compiled(rank, graphs=2) for rank in range(2)], tmp_path)) == []


def compiled(rank: int, graphs: int = 1) -> TraceBuilder:
    trace = TraceBuilder(rank=rank)
    trace.step(5, 0, 15_000)
    trace.kernel("forward", launched=50, start=60, duration=1000)
    for k in range(graphs):
        trace.backward("CompiledFunctionBackward", 100 + 200 * k, 190)
        trace.cpu_op("CompiledFunctionBackward", 101 + 200 * k, 188, thread=AUTOGRAD)
    for k in range(8):
        trace.kernel("triton", launched=105 + 20 * k, start=1062 + 1000 * k, duration=1000, thread=AUTOGRAD)
    for k in range(4):
        launched = 600 + 50 * k
        trace.accumulate_grad(launched - 10, 30)
        start = 9065 + 1000 * k
        trace.collective(
            "allreduce", launched=launched, start=start, duration=1000, elements=MIB_OF_FLOATS, sequence=k
        )
    trace.optimizer(1000, 100)
    trace.kernel("adamw", launched=1050, start=13_070, duration=500)
    trace.cpu_op("aten::item", 1200, 12_400)
    trace.memcpy("Memcpy DtoH (Device -> Pageable)", launched=1205, start=13_572, duration=2)
    trace.runtime("cudaStreamSynchronize", 1210, 12_380)
    return trace


def test_a_unit_gathered_twice_in_one_phase_is_priced(tmp_path: Path) -> None:
    """Recomputation gathers what backward had just gathered; each gather keeps the compute stream waiting for 1 ms."""
    both = fsdp_prefetch.detect(built([checkpointed(2)], tmp_path))
    found = one(
        [
            finding
            for finding in both
            if "gathered before in the same phase, such as layers.0" in finding.evidence[0]
        ]
    )
    assert found.cost_ms == pytest.approx(1.0, abs=0.05)
    assert fsdp_prefetch.detect(built([checkpointed(1)], tmp_path)) == []


def checkpointed(gathers: int) -> TraceBuilder:
    """One unit: gathered in forward, and so many times in backward."""
    trace = TraceBuilder()
    trace.step(5, 0, 12_000)
    trace.cpu_op("FSDP::all_gather (layers.0)", 40, 30)
    trace.collective(
        "allgather", launched=50, start=60, duration=1000, elements=1024, thread=MAIN, sequence=0
    )
    trace.kernel("gemm", launched=80, start=1065, duration=1000)
    at = 2070.0
    for k in range(gathers):
        trace.backward("MmBackward0", 195 + 60 * k, 55)
        trace.cpu_op("FSDP::all_gather (layers.0)", 200 + 60 * k, 20, thread=AUTOGRAD)
        trace.collective(
            "allgather", launched=205 + 60 * k, start=at, duration=1000, elements=1024, sequence=1 + k
        )
        trace.kernel("gemm_backward", launched=240 + 60 * k, start=at + 1005, duration=500, thread=AUTOGRAD)
        at += 1510
    trace.optimizer(500, 100)
    trace.kernel("adamw", launched=550, start=at, duration=500)
    trace.cpu_op("aten::item", 700, at)
    trace.memcpy("Memcpy DtoH (Device -> Pageable)", launched=705, start=at + 505, duration=2)
    trace.runtime("cudaStreamSynchronize", 710, at - 190)
    return trace


def test_kernels_of_one_name_and_many_sizes_say_nothing_of_contention(tmp_path: Path) -> None:
    trace = TraceBuilder()
    trace.step(5, 0, 20_000)
    for k in range(12):
        trace.kernel("gemm", launched=50 + 20 * k, start=500 + 1000 * k, duration=100 + 70 * k)
    trace.collective("allreduce", launched=45, start=8000, duration=4000, elements=MIB_OF_FLOATS, thread=MAIN)
    assert contention.detect(built([trace], tmp_path)) == []


def test_ordinary_queueing_of_buckets_is_neither_one_queue_nor_a_wait_edge(tmp_path: Path) -> None:
    """A slow link: the buckets wait for each other, the compute for none of them."""
    case = simulated(Simulation(Job(ranks=2, causes=(parse("link-bound:factor=4"),))), tmp_path)
    for detector in (
        single_hardware_queue,
        wait_edge_on_device,
        blocking_environment,
        pageable_copy,
        contention,
    ):
        assert detector.detect(case) == []


def test_a_stragglers_pause_on_the_host_is_not_launch_bound(tmp_path: Path) -> None:
    causes = (parse("straggler:rank=1,ms=8,by=host"),)
    found, _ = find_causes(simulated(Simulation(Job(ranks=2, causes=causes)), tmp_path))
    assert "launch-bound" not in [one.cause for one in found]
    assert "host-sync" not in [one.cause for one in found]


def test_a_synchronised_batch_norms_waits_are_no_wait_edges_of_buckets(tmp_path: Path) -> None:
    case = simulated(Simulation(Job(ranks=2, causes=(parse("sync-batch-norm"),))), tmp_path)
    assert wait_edge_on_device.detect(case) == []
