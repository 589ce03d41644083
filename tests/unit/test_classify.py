"""Phases, steps, sizes and roles on traces with chosen timestamps."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from build_trace import AUTOGRAD, MAIN, TraceBuilder
from stepscope.trace.classify import classify
from stepscope.trace.reader import read
from stepscope.trace.recording import CollectiveOp, Phase, Recording

SYNC_BN = "SyncBatchNormBackward"


def recorded(trace: TraceBuilder, folder: Path) -> Recording:
    return classify(read(trace.write(folder / "rank0.json")))


def only(recording: Recording) -> CollectiveOp:
    (op,) = recording.collectives
    return op


def phases(recording: Recording) -> list[str]:
    return [Phase(phase).name for phase in recording.compute.phase]


def test_the_phase_is_where_the_launch_sits_not_where_the_kernel_runs(tmp_path: Path) -> None:
    trace = TraceBuilder()
    trace.step(5, 0, 1000)
    trace.backward("MmBackward0", 100, 50)
    trace.optimizer(200, 50)
    trace.kernel("gemm", launched=10, start=120, duration=10)
    trace.kernel("gemm", launched=110, start=210, duration=10, thread=AUTOGRAD)
    trace.kernel("gemm", launched=120, start=300, duration=10, thread=MAIN)
    trace.kernel("adam", launched=220, start=400, duration=10)
    trace.kernel("lost", start=500, duration=10)
    recording = recorded(trace, tmp_path)
    assert phases(recording) == ["FORWARD", "BACKWARD", "FORWARD", "OPTIMIZER", "UNKNOWN"]
    assert recording.unknown_phase == 1


def test_the_inner_of_backward_and_optimizer_counts(tmp_path: Path) -> None:
    trace = TraceBuilder()
    trace.step(5, 0, 1000)
    trace.optimizer(100, 300)
    trace.backward("MmBackward0", 150, 50, thread=MAIN)
    trace.kernel("closure_backward", launched=160, start=170, duration=10)
    trace.kernel("update", launched=300, start=310, duration=10)
    trace.accumulate_grad(500, 200)
    trace.annotation("Optimizer.step#SGD.step", 550, 50, thread=AUTOGRAD)
    trace.kernel("update_in_backward", launched=560, start=570, duration=10, thread=AUTOGRAD)
    assert phases(recorded(trace, tmp_path)) == ["BACKWARD", "OPTIMIZER", "OPTIMIZER"]


def test_a_step_holds_what_its_host_window_launched_however_late_it_ran(tmp_path: Path) -> None:
    trace = TraceBuilder()
    trace.step(7, 0, 100)
    trace.step(8, 100, 100)
    trace.kernel("late", launched=90, start=150, duration=10)
    trace.kernel("next", launched=110, start=170, duration=10)
    trace.kernel("after", launched=250, start=260, duration=10)
    recording = recorded(trace, tmp_path)
    assert [w.number for w in recording.steps.windows] == [7, 8]
    assert recording.compute.step.tolist() == [7, 8, -1]


def test_without_profiler_marks_steps_end_with_the_rarest_optimizers_step(tmp_path: Path) -> None:
    trace = TraceBuilder()
    for k in range(2):
        trace.kernel("work", launched=k * 100 + 10, start=k * 100 + 20, duration=10)
        trace.optimizer(k * 100 + 40, 10, name="Discriminator")
        trace.optimizer(k * 100 + 60, 10, name="Discriminator")
        trace.annotation("Optimizer.step#Zero.step", k * 100 + 80, 10)
        trace.annotation("Optimizer.step#Inner.step", k * 100 + 82, 5)
    recording = recorded(trace, tmp_path)
    assert recording.steps.found_by == "Optimizer.step"
    starts = [(w.start, w.end) for w in recording.steps.windows]
    assert starts == [(0, 80_000), (80_000, 180_000)], "ns from the first event, which is at 10 us"
    assert [w.code for w in recording.steps.warnings] == ["steps-by-optimizer"]


@pytest.mark.parametrize("mark", ["Optimizer.step#SGD.step", "DistributedDataParallel.forward"])
def test_marks_at_one_moment_have_no_step_between_them(tmp_path: Path, mark: str) -> None:
    trace = TraceBuilder()
    trace.kernel("work", launched=10, start=20, duration=10)
    for at in (40, 40, 40, 90):
        trace.annotation(mark, at, 0)
    windows = recorded(trace, tmp_path).steps.windows
    assert [w.number for w in windows] == list(range(len(windows)))
    assert all(w.start < w.end for w in windows)
    assert {30_000, 80_000} < {border for w in windows for border in (w.start, w.end)}


def test_without_any_mark_the_file_is_one_step_and_says_so(tmp_path: Path) -> None:
    trace = TraceBuilder()
    trace.kernel("work", launched=10, start=20, duration=10)
    recording = recorded(trace, tmp_path)
    assert len(recording.steps.windows) == 1
    assert [w.code for w in recording.steps.warnings] == ["no-step-marks"]


def test_what_a_communication_operator_launches_is_a_collective_whatever_its_name(tmp_path: Path) -> None:
    trace = TraceBuilder()
    trace.step(5, 0, 1000)
    trace.cpu_op("c10d::_allgather_base_", 10, 50)
    trace.cpu_op("aten::cat", 20, 10)
    trace.kernel("pack_the_list", launched=22, start=100, duration=10)
    trace.kernel("brand_new_transport", launched=40, start=200, duration=10)
    trace.memcpy("Memcpy DtoD (Device -> Device)", launched=50, start=300, duration=10)
    trace.memcpy("Memcpy HtoD (Pinned -> Device)", launched=55, start=400, duration=10)
    trace.memcpy("Memcpy DtoD (Device -> Device)", launched=90, start=500, duration=10)
    recording = recorded(trace, tmp_path)
    assert [(op.name, op.kind) for op in recording.collectives] == [
        ("brand_new_transport", "all_gather"),
        ("Memcpy DtoD (Device -> Device)", "all_gather"),
    ]
    assert recording.compute.start.tolist() == [100_000], "packing is compute; other copies are neither"


def test_a_kernel_that_carries_a_collectives_args_is_one(tmp_path: Path) -> None:
    trace = TraceBuilder()
    trace.step(5, 0, 1000)
    args: dict[str, Any] = {
        "Collective name": "_reduce_scatter_base",
        "In msg nelems": 64,
        "Out msg nelems": 32,
        "dtype": "BFloat16",
    }
    trace.kernel("ncclDevKernel_Generic(x)", launched=10, start=100, duration=10, stream=3, **args)
    op = only(recorded(trace, tmp_path))
    assert (op.kind, op.bytes, op.stream) == ("reduce_scatter", 128, 3)


def test_rccls_generic_kernel_is_told_apart_by_its_operator(tmp_path: Path) -> None:
    trace = TraceBuilder()
    trace.step(5, 0, 1000)
    trace.cpu_op("c10d::alltoall_base_", 5, 20)
    trace.kernel("ncclDevKernel_Generic(x)", launched=10, start=100, duration=10, launch="hipLaunchKernel")
    recording = recorded(trace, tmp_path)
    assert only(recording).kind == "all_to_all"
    assert recording.device == "rocm"


def reduce_in(
    trace: TraceBuilder, launched: float, thread: int = AUTOGRAD, elements: int = 5000, dtype: str = "Float"
) -> None:
    """An all-reduce launched at a time on a thread, 100 us before it runs."""
    start = launched + 100
    trace.collective(
        "allreduce",
        launched=launched,
        start=start,
        duration=50,
        elements=elements,
        dtype=dtype,
        thread=thread,
    )


def test_the_reducers_all_reduce_is_gradient_traffic(tmp_path: Path) -> None:
    trace = TraceBuilder()
    trace.step(5, 0, 1000)
    trace.accumulate_grad(80, 30)
    reduce_in(trace, 90)
    op = only(recorded(trace, tmp_path))
    assert (op.role, op.phase, op.bytes, op.step) == ("gradient", Phase.BACKWARD, 20_000, 5)


def test_synchronised_batch_norm_reduces_in_backward_and_is_no_gradient(tmp_path: Path) -> None:
    trace = TraceBuilder()
    trace.step(5, 0, 1000)
    trace.backward(SYNC_BN, 80, 30)
    reduce_in(trace, 90)
    assert only(recorded(trace, tmp_path)).role == "activation"


def test_fsdps_reduce_scatter_is_gradient_and_its_all_gather_is_not(tmp_path: Path) -> None:
    trace = TraceBuilder()
    trace.step(5, 0, 1000)
    trace.annotation("FSDP::all_gather (layers.0)", 10, 30)
    trace.collective("allgather", launched=20, start=30, duration=10, elements=8, thread=MAIN)
    trace.backward("RegisterPostBackwardFunctionBackward", 70, 60)
    trace.annotation("FSDP::post_backward_reduce (layers.0)", 80, 40, thread=AUTOGRAD)
    trace.collective("reduce_scatter", launched=90, start=200, duration=50, elements=64)
    recording = recorded(trace, tmp_path)
    assert [(op.kind, op.role) for op in recording.collectives] == [
        ("all_gather", "parameter"),
        ("reduce_scatter", "gradient"),
    ]


@pytest.mark.parametrize(
    ("elements", "dtype", "role"),
    [(5000, "Float", "gradient"), (1, "Float", "metric"), (5000, "Int", "unused-parameter-map")],
    ids=["as large as gradients", "one number", "integers"],
)
def test_a_reduction_by_hand_after_backward_is_judged_by_what_it_carries(
    tmp_path: Path, elements: int, dtype: str, role: str
) -> None:
    trace = TraceBuilder()
    trace.step(5, 0, 1000)
    trace.backward("MmBackward0", 80, 30)
    trace.kernel("gemm", launched=85, start=90, duration=20, thread=AUTOGRAD)
    reduce_in(trace, 200, thread=MAIN, elements=elements, dtype=dtype)
    assert only(recorded(trace, tmp_path)).role == role


def test_beside_the_reducer_a_reduction_by_hand_is_no_gradient(tmp_path: Path) -> None:
    trace = TraceBuilder()
    trace.step(5, 0, 1000)
    trace.accumulate_grad(80, 30)
    reduce_in(trace, 90)
    reduce_in(trace, 200, thread=MAIN)
    assert [op.role for op in recorded(trace, tmp_path).collectives] == ["gradient", "other"]


def test_a_reduction_in_forward_is_no_gradient(tmp_path: Path) -> None:
    trace = TraceBuilder()
    trace.step(5, 0, 1000)
    reduce_in(trace, 20, thread=MAIN)
    trace.backward("MmBackward0", 80, 30)
    assert only(recorded(trace, tmp_path)).role == "other"


@pytest.mark.parametrize(
    ("dtype", "role"), [("Float", "buffer"), ("Long", "buffer"), ("Int", "bucket-rebuild")]
)
def test_ddps_broadcasts_are_told_apart_by_their_type(tmp_path: Path, dtype: str, role: str) -> None:
    trace = TraceBuilder()
    trace.step(5, 0, 1000)
    trace.annotation("DistributedDataParallel.forward", 10, 50)
    trace.collective("broadcast", launched=20, start=30, duration=10, elements=9, dtype=dtype, thread=MAIN)
    assert only(recorded(trace, tmp_path)).role == role


def test_zeros_parameter_broadcast_is_the_optimizers(tmp_path: Path) -> None:
    trace = TraceBuilder()
    trace.step(5, 0, 1000)
    trace.optimizer(10, 100)
    trace.collective("broadcast", launched=20, start=30, duration=10, elements=9, thread=MAIN)
    op = only(recorded(trace, tmp_path))
    assert (op.role, op.phase) == ("parameter", Phase.OPTIMIZER)


def test_a_gloo_run_is_read_from_spans_and_operators(tmp_path: Path) -> None:
    trace = TraceBuilder(backend="gloo")
    trace.step(5, 0, 1000)
    trace.cpu_op("aten::mm", 10, 50)
    trace.cpu_op("aten::t", 20, 5)
    trace.backward("MmBackward0", 100, 50, thread=MAIN)
    trace.cpu_op("MmBackward0", 101, 48)
    trace.cpu_op("aten::mm", 105, 40)
    trace.accumulate_grad(160, 30, thread=MAIN)
    trace.cpu_op("torch::distributed::reducer::mul_out", 162, 8, dims=[[5000]], types=["float"])
    trace.gloo("all_reduce", 180, 100, elements=5000, launched=175)
    recording = recorded(trace, tmp_path)
    assert recording.device == "cpu"
    assert phases(recording) == ["FORWARD", "FORWARD", "BACKWARD", "BACKWARD"], "no wrapper, no c10d op"
    op = only(recording)
    assert (op.kind, op.role, op.bytes, op.phase, op.step) == (
        "all_reduce",
        "gradient",
        20_000,
        Phase.BACKWARD,
        5,
    )
    assert [(c.end, c.step) for c in recording.copies] == [(170_000, 5)]


def test_gloo_runs_a_reduce_scatter_as_an_all_reduce_and_the_operator_tells(tmp_path: Path) -> None:
    trace = TraceBuilder(backend="gloo")
    trace.step(5, 0, 1000)
    trace.cpu_op("aten::mm", 10, 50)
    trace.cpu_op(
        "c10d::_reduce_scatter_base_", 100, 5, dims=[[32], [64], [], []], types=["float", "float", "", ""]
    )
    trace.gloo("all_reduce", 110, 50, elements=64)
    op = only(recorded(trace, tmp_path))
    assert (op.kind, op.bytes) == ("reduce_scatter", 256)


def test_each_gloo_span_finds_its_own_launch_when_two_run_at_once(tmp_path: Path) -> None:
    trace = TraceBuilder(backend="gloo")
    trace.step(5, 0, 1000)
    trace.cpu_op("aten::mm", 10, 50)
    trace.gloo("all_reduce", 120, 100, elements=10, launched=100, worker=0)
    trace.gloo("broadcast", 130, 20, elements=7, launched=105, worker=1)
    trace.gloo("all_reduce", 160, 50, elements=30, launched=110, worker=1)
    found = [(op.kind, op.elements, op.launch) for op in recorded(trace, tmp_path).collectives]
    assert found == [("all_reduce", 10, 100_000), ("broadcast", 7, 105_000), ("all_reduce", 30, 110_000)]


def test_a_span_whose_launch_was_not_recorded_has_no_phase(tmp_path: Path) -> None:
    trace = TraceBuilder(backend="gloo")
    trace.step(5, 0, 1000)
    trace.cpu_op("aten::mm", 10, 50)
    trace.gloo("all_reduce", 120, 100, elements=10)
    recording = recorded(trace, tmp_path)
    assert (only(recording).phase, only(recording).role, recording.unknown_phase) == (
        Phase.UNKNOWN,
        "other",
        1,
    )


def zero_step(*, marked: bool = False, kind: str = "allreduce", left: int = 2_000) -> TraceBuilder:
    """ZeRO 2 as DeepSpeed does it: parameters gathered first, a bucket reduced in backward, what is left after it, a norm.

    kind: the gradients' collectives; left: elements of the last.
    """
    trace = TraceBuilder()
    trace.step(5, 0, 1000)
    if marked:
        trace.annotation("DistributedDataParallel.forward", 50, 10)
    trace.collective("allgather", launched=10, start=20, duration=20, elements=10_000, thread=MAIN)
    trace.accumulate_grad(100, 100)
    trace.collective(kind, launched=150, start=160, duration=20, elements=8_000, thread=AUTOGRAD)
    trace.collective(kind, launched=250, start=260, duration=20, elements=left, thread=MAIN)
    trace.collective("allreduce", launched=290, start=300, duration=10, elements=1, thread=MAIN)
    trace.optimizer(400, 50)
    return trace


@pytest.mark.parametrize(
    ("kind", "left"),
    [("allreduce", 2_000), ("reduce", 2_000), ("reduce_scatter", 10)],
    ids=["to all", "to the rank that owns a part", "scattered, however small the last"],
)
def test_zero_without_marks_is_told_by_what_hooks_reduce_and_forward_gathers(
    tmp_path: Path, kind: str, left: int
) -> None:
    roles = [op.role for op in recorded(zero_step(kind=kind, left=left), tmp_path).collectives]
    assert roles == ["parameter", "gradient", "gradient", "metric"]


def test_zero_reduces_what_is_left_after_each_micro_batch(tmp_path: Path) -> None:
    trace = zero_step()
    trace.accumulate_grad(310, 20)
    trace.collective("allreduce", launched=320, start=330, duration=10, elements=8_000, thread=AUTOGRAD)
    trace.collective("allreduce", launched=350, start=360, duration=10, elements=2_000, thread=MAIN)
    roles = [op.role for op in recorded(trace, tmp_path).collectives]
    assert roles == ["parameter", "gradient", "gradient", "metric", "gradient", "gradient"]


@pytest.mark.parametrize(
    ("elements", "dtype", "role"),
    [(8, "Float", "parameter"), (2, "Float", "metric"), (8, "Long", "metric")],
    ids=["a split bias", "one number a rank", "counts"],
)
def test_what_zero_gathers_are_parameters_however_small_but_no_numbers_of_the_ranks(
    tmp_path: Path, elements: int, dtype: str, role: str
) -> None:
    trace = zero_step()
    trace.collective(
        "allgather", launched=50, start=60, duration=10, elements=elements, dtype=dtype, thread=MAIN
    )
    assert recorded(trace, tmp_path).collectives[1].role == role


def test_under_ddp_the_same_is_no_zero(tmp_path: Path) -> None:
    roles = [op.role for op in recorded(zero_step(marked=True), tmp_path).collectives]
    assert roles == ["activation", "gradient", "other", "metric"]
