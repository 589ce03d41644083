"""Whole audits of traces with chosen timestamps: every figure is known beforehand."""

from __future__ import annotations

from pathlib import Path

import pytest

from build_trace import ACCUMULATE_GRAD, AUTOGRAD, MAIN, TraceBuilder
from stepscope.audit.build import audit
from stepscope.audit.result import Audit, Thresholds
from stepscope.audit.wording import Facts, confidence
from stepscope.compare.between import compare
from stepscope.trace.classify import classify
from stepscope.trace.reader import read

ELEMENTS = 1 << 20


def audited(folder: Path, *traces: TraceBuilder, thresholds: Thresholds | None = None) -> Audit:
    files = [trace.write(folder / f"rank{k}.json") for k, trace in enumerate(traces)]
    return audit([classify(read(file)) for file in files], thresholds)


def one_bucket_step(
    trace: TraceBuilder, number: int, origin: float, *, comm: float, launched: float = 90, wall: float = 1000
) -> None:
    """Forward 100 to 200, backward 200 to 400 (gradient copied at 400), all-reduce from 400; us from origin.

    The host reads the loss from 200 on: it goes on when the optimizer's kernel is over.
    """
    trace.step(number, origin, wall)
    trace.kernel("gemm", launched=origin + 40, start=origin + 100, duration=100)
    trace.backward("MmBackward0", origin + 60, 20)
    trace.kernel("gemm", launched=origin + 65, start=origin + 200, duration=190, thread=AUTOGRAD)
    trace.accumulate_grad(origin + 85, 20)
    trace.kernel("copy", launched=origin + 86, start=origin + 390, duration=10, thread=AUTOGRAD)
    trace.collective(
        "allreduce", launched=origin + launched, start=origin + 400, duration=comm, elements=ELEMENTS
    )
    trace.optimizer(origin + 120, 30)
    trace.kernel("adam", launched=origin + 125, start=origin + 400 + comm, duration=100)
    trace.runtime("cudaStreamSynchronize", origin + 200, 300 + comm)


def test_every_figure_of_a_step_is_the_one_it_was_built_with(tmp_path: Path) -> None:
    trace = TraceBuilder()
    one_bucket_step(trace, 5, 0, comm=300)
    (step,) = audited(tmp_path, trace).ranks[0].steps
    assert (step.step, step.valid, step.wall_ms) == (5, True, 1.0)
    assert (step.comm_ms, step.exposed_ms, step.hidden_backward_ms, step.hidden_other_ms) == (
        0.3,
        0.3,
        0.0,
        0.0,
    )
    assert (step.compute_ms, step.backward_compute_ms, step.collectives) == (0.4, 0.2, 1)
    assert step.grad is not None
    assert (step.grad.floor_ms, step.grad.excess_ms) == (0.3, 0.0), (
        "its only bucket can't start before 0.4 ms"
    )
    assert step.cost_ms == 0.3
    assert step.device_busy_share == pytest.approx(0.7)
    assert step.timeline is not None
    assert step.timeline.backward == [(0.2, 0.4)]
    assert step.timeline.exposed == [(0.4, 0.7)]


def test_a_bucket_has_the_same_medians_in_an_audit_and_in_a_comparison(tmp_path: Path) -> None:
    ranks = [TraceBuilder(rank=rank, world_size=2) for rank in (0, 1)]
    for number, durations in enumerate([(100, 300), (400, 600), (200, 240)]):
        for trace, duration in zip(ranks, durations, strict=True):
            one_bucket_step(trace, number + 5, 3000 * number, comm=duration, wall=3000)
    made = audited(tmp_path, *ranks)
    (row,) = made.buckets
    assert (row.duration_ms, row.exposed_ms, row.hidden_share) == pytest.approx((0.22, 0.22, 0.0))
    (shown,) = compare(made, made, ("a", "b")).buckets
    figures = {one.figure: one.a for one in shown.figures}
    assert figures == {name: getattr(row, name) for name in ("duration_ms", "exposed_ms", "hidden_share")}


def test_a_bucket_that_runs_beside_backward_is_hidden_by_it(tmp_path: Path) -> None:
    trace = TraceBuilder()
    trace.step(5, 0, 1000)
    trace.backward("MmBackward0", 60, 200)
    trace.kernel("gemm", launched=65, start=200, duration=100, thread=AUTOGRAD)
    trace.kernel("gemm", launched=250, start=300, duration=100, thread=AUTOGRAD)
    trace.accumulate_grad(80, 30)
    trace.collective("allreduce", launched=90, start=250, duration=300, elements=ELEMENTS)
    trace.optimizer(300, 30)
    trace.kernel("adam", launched=310, start=500, duration=100)
    found = audited(tmp_path, trace)
    (step,) = found.ranks[0].steps
    assert (step.hidden_backward_ms, step.hidden_other_ms, step.exposed_ms) == (0.15, 0.05, 0.1)
    assert found.verdict.overlap_backward == 0.5
    (row,) = found.collectives
    assert (row.hidden_backward_ms, row.exposed_ms, row.bytes, row.role) == (
        0.15,
        0.1,
        4 * ELEMENTS,
        "gradient",
    )


def test_a_gap_before_a_launch_is_the_hosts_and_one_after_it_is_not(tmp_path: Path) -> None:
    trace = TraceBuilder()
    trace.step(5, 0, 1000)
    trace.backward("MmBackward0", 60, 500)
    trace.kernel("gemm", launched=65, start=100, duration=100, thread=AUTOGRAD)
    trace.accumulate_grad(80, 30)
    trace.collective("allreduce", launched=90, start=200, duration=200, elements=ELEMENTS)
    # Idle from 200 to 400; the kernel that ends it was launched at 350: 150 us are the host's, 50 us the device's.
    trace.kernel("gemm", launched=350, start=400, duration=100, thread=AUTOGRAD)
    trace.runtime("cudaStreamSynchronize", 570, 5)
    trace.runtime("cudaStreamSynchronize", 360, 140)
    (step,) = audited(tmp_path, trace).ranks[0].steps
    assert step.exposed_ms == 0.2
    assert step.waterfall is not None
    assert step.waterfall.host_starved_ms == 0.15
    assert step.cost_ms == 0.04, "launched at 350 it could have started 10 us later"
    assert step.host_starved_share == pytest.approx(0.15)


def test_buckets_are_cut_by_size_and_ready_when_their_last_gradient_is_there(tmp_path: Path) -> None:
    trace = TraceBuilder(backend="gloo")
    trace.step(5, 0, 1000)
    trace.cpu_op("aten::mm", 1, 9)
    for at, elements in ((100, 30), (150, 20), (200, 50)):
        trace.accumulate_grad(at, 40, thread=MAIN)
        trace.cpu_op("torch::autograd::AccumulateGrad", at + 1, 38, dims=[[elements]], types=["float"])
        trace.cpu_op("torch::distributed::reducer::mul_out", at + 2, 8, dims=[[elements]], types=["float"])
    trace.gloo("all_reduce", 195, 100, elements=50, launched=162, worker=0)
    trace.gloo("all_reduce", 225, 100, elements=50, launched=215, worker=1)
    found = audited(tmp_path, trace)
    assert [(b.bytes, b.parameters, b.ready_ms) for b in found.buckets] == [(200, 2, 0.058), (200, 1, 0.108)]
    assert [b.launch_ms for b in found.buckets] == [0.06, 0.113]


def test_gradients_only_accumulated_in_earlier_micro_batches_belong_to_no_bucket(tmp_path: Path) -> None:
    trace = TraceBuilder(backend="gloo")
    trace.step(5, 0, 1000)
    for at, elements in ((100, 30), (150, 20), (300, 30), (350, 20)):
        trace.accumulate_grad(at, 40, thread=MAIN)
        trace.cpu_op("torch::autograd::AccumulateGrad", at + 1, 38, dims=[[elements]], types=["float"])
        trace.cpu_op("aten::add_", at + 2, 8)
    trace.gloo("all_reduce", 395, 100, elements=50, launched=365)
    (bucket,) = audited(tmp_path, trace).buckets
    assert (bucket.parameters, bucket.ready_ms) == (2, 0.258)


def test_two_gloo_lanes_share_the_link_in_the_floor(tmp_path: Path) -> None:
    trace = TraceBuilder(backend="gloo")
    trace.step(5, 0, 1000)
    for at in (100, 110):
        trace.backward("torch::autograd::AccumulateGrad", at, 9, thread=MAIN)
        trace.cpu_op("aten::mul", at + 1, 4)
    # Both run from 200 to 400 at half the rate: 100 us of transfer each, ready at 105 and 115, over at 305.
    trace.gloo("all_reduce", 200, 200, elements=10, launched=106, worker=0)
    trace.gloo("all_reduce", 200, 200, elements=10, launched=116, worker=1)
    (step,) = audited(tmp_path, trace).ranks[0].steps
    assert step.grad is not None
    assert step.grad.floor_ms == pytest.approx(0.305 - 0.115)
    assert step.grad.exposed_ms == 0.2
    assert step.grad.excess_ms == pytest.approx(0.2 - 0.19)


@pytest.mark.parametrize(
    ("comm", "label", "reason"),
    [
        (180, "comm-bound", "serialised"),
        (400, "comm-bound", "link"),
        (50, "compute-bound", "little communication"),
    ],
)
def test_the_label_follows_what_was_measured(tmp_path: Path, comm: float, label: str, reason: str) -> None:
    trace = TraceBuilder()
    for k in range(3):
        one_bucket_step(trace, k + 5, k * 1000, comm=comm)
    verdict = audited(tmp_path, trace).verdict
    assert (verdict.label, verdict.reason) == (label, reason)
    share = comm / 1000
    assert verdict.cost_share == pytest.approx(share)
    assert verdict.cost_share_ci == pytest.approx((share, share))
    assert verdict.comm_share == pytest.approx(comm / (1000 - comm))


def hidden_step(trace: TraceBuilder, number: int, origin: float, *, comm: float) -> None:
    """An all-reduce from 200 that runs beside 500 us of backward."""
    trace.step(number, origin, 1000)
    trace.backward("MmBackward0", origin + 60, 20)
    trace.kernel("gemm", launched=origin + 65, start=origin + 100, duration=90, thread=AUTOGRAD)
    trace.accumulate_grad(origin + 81, 15)
    trace.kernel("copy", launched=origin + 82, start=origin + 190, duration=10, thread=AUTOGRAD)
    trace.collective("allreduce", launched=origin + 90, start=origin + 200, duration=comm, elements=ELEMENTS)
    trace.backward("MmBackward0", origin + 100, 20)
    trace.kernel("gemm", launched=origin + 105, start=origin + 200, duration=500, thread=AUTOGRAD)


def test_hidden_communication_is_sensitive_with_its_headroom(tmp_path: Path) -> None:
    trace = TraceBuilder()
    for k in range(2):
        hidden_step(trace, k + 5, k * 1000, comm=300)
    verdict = audited(tmp_path, trace).verdict
    assert (verdict.label, verdict.cost_share, verdict.overlap_backward) == ("comm-sensitive", 0.0, 1.0)
    # Slower by h, the transfer ends at 200 + 300 h, 300 h - 500 us after backward; that is 10 % of the step at 2.04.
    assert verdict.headroom == pytest.approx((500 + 1000 / 9) / 300, rel=0.02)


def test_an_interval_across_the_threshold_names_both_labels(tmp_path: Path) -> None:
    trace = TraceBuilder()
    for k, comm in enumerate((60, 100, 140)):
        one_bucket_step(trace, k + 5, k * 1000, comm=comm)
    verdict = audited(tmp_path, trace).verdict
    assert verdict.label == "inconclusive"
    assert "comm-bound" in verdict.reason
    assert "comm-sensitive" in verdict.reason


def test_thresholds_are_options_and_the_verdict_names_them(tmp_path: Path) -> None:
    trace = TraceBuilder()
    one_bucket_step(trace, 5, 0, comm=180)
    strict = Thresholds(cost_share=0.5, comm_share=0.1)
    verdict = audited(tmp_path, trace, thresholds=strict).verdict
    assert (verdict.label, verdict.thresholds) == ("comm-sensitive", strict)


def test_one_valid_step_gives_a_verdict_and_says_that_it_has_no_interval(tmp_path: Path) -> None:
    trace = TraceBuilder()
    one_bucket_step(trace, 5, 0, comm=180)
    verdict = audited(tmp_path, trace).verdict
    assert (verdict.label, verdict.cost_share_ci) == ("comm-bound", None)
    assert "One valid step only" in verdict.explanation


@pytest.mark.parametrize(
    ("label", "steps", "told"),
    [
        ("comm-bound", 1, "medium: one valid step only"),
        ("comm-bound", 2, "medium: two valid steps only"),
        ("comm-bound", 3, "high"),
        ("inconclusive", 8, "medium: the interval over the steps holds a threshold"),
    ],
)
def test_few_steps_and_an_interval_across_a_threshold_lower_the_confidence(
    label: str, steps: int, told: str
) -> None:
    facts = Facts(
        label=label,
        reason="link",
        thresholds=Thresholds(),
        headroom=None,
        replayed=True,
        ranks=2,
        steps=steps,
        host_bound=False,
        sharded=False,
    )
    assert confidence(facts) == told


def test_ranks_are_averaged_within_a_step_and_their_spread_is_told(tmp_path: Path) -> None:
    fast, slow = TraceBuilder(rank=0), TraceBuilder(rank=1)
    one_bucket_step(fast, 5, 0, comm=100)
    one_bucket_step(slow, 5, 0, comm=300)
    verdict = audited(tmp_path, fast, slow).verdict
    assert verdict.cost_share == pytest.approx(0.2)
    assert verdict.rank_spread == pytest.approx((0.1, 0.3))


def test_the_same_rank_twice_is_two_recordings_of_it(tmp_path: Path) -> None:
    first, second = TraceBuilder(rank=0), TraceBuilder(rank=0)
    one_bucket_step(first, 5, 0, comm=150)
    one_bucket_step(second, 5, 0, comm=250)
    found = audited(tmp_path, first, second)
    assert [rank.rank for rank in found.ranks] == [0, 0]
    assert "same-rank-twice" in [warning.code for warning in found.warnings]
    assert found.verdict.cost_share_ci == pytest.approx((0.15, 0.25)), "two steps, not one mean of two ranks"


def test_ddps_rebuild_step_is_marked_and_left_out(tmp_path: Path) -> None:
    trace = TraceBuilder()
    one_bucket_step(trace, 1, 0, comm=400)
    trace.annotation("DistributedDataParallel.forward", 1, 30)
    trace.collective("broadcast", launched=5, start=10, duration=5, elements=9, dtype="Int", thread=MAIN)
    one_bucket_step(trace, 2, 1000, comm=180)
    found = audited(tmp_path, trace)
    first, second = found.ranks[0].steps
    assert (first.valid, second.valid) == (False, True)
    assert "rebuilt its buckets" in (first.why_invalid or "")
    assert found.verdict.cost_share == pytest.approx(0.18)


def test_the_first_step_and_a_step_cut_short_are_left_out(tmp_path: Path) -> None:
    trace = TraceBuilder()
    one_bucket_step(trace, 0, 0, comm=400)
    one_bucket_step(trace, 1, 1000, comm=180)
    one_bucket_step(trace, 2, 2000, comm=180)
    trace.step(3, 3000, 50)
    trace.kernel("gemm", launched=3010, start=3020, duration=10)
    found = audited(tmp_path, trace)
    assert [(s.step, s.valid) for s in found.ranks[0].steps] == [(0, False), (1, True), (2, True), (3, False)]
    assert "half recorded" in (found.ranks[0].steps[3].why_invalid or "")


def test_static_graphs_second_step_is_still_warm_up(tmp_path: Path) -> None:
    trace = TraceBuilder()
    one_bucket_step(trace, 1, 0, comm=300)
    for k in (2, 3):
        one_bucket_step(trace, k, (k - 1) * 1000, comm=100)
        trace.accumulate_grad((k - 1) * 1000 + 106, 8)
        trace.collective(
            "allreduce", launched=(k - 1) * 1000 + 108, start=(k - 1) * 1000 + 500, duration=90, elements=7
        )
    steps = audited(tmp_path, trace).ranks[0].steps
    assert [step.valid for step in steps] == [False, True, True]
    assert "static_graph" in (steps[0].why_invalid or "")


def test_no_communication_is_a_label_without_a_percentage(tmp_path: Path) -> None:
    trace = TraceBuilder()
    trace.step(5, 0, 100)
    trace.kernel("gemm", launched=10, start=20, duration=30)
    verdict = audited(tmp_path, trace).verdict
    assert (verdict.label, verdict.overlap_backward, verdict.cost_share) == ("no communication", None, None)


def test_collectives_launched_but_not_recorded_are_no_lack_of_communication(tmp_path: Path) -> None:
    for world_size, label in ((2, "inconclusive"), (1, "no communication")):
        trace = TraceBuilder(world_size=world_size)
        trace.step(5, 0, 100)
        trace.cpu_op("aten::mm", 10, 30)
        trace.cpu_op("c10d::allreduce_", 50, 10)
        verdict = audited(tmp_path, trace).verdict
        assert verdict.label == label, "one rank launches collectives that move nothing"


def test_without_launch_records_overlap_with_any_compute_is_all_that_is_said(tmp_path: Path) -> None:
    trace = TraceBuilder()
    trace.step(5, 0, 1000)
    trace.kernel("gemm", start=100, duration=100)
    trace.kernel("ncclDevKernel_AllReduce_Sum_f32_RING_LL(x)", start=150, duration=100, stream=17)
    found = audited(tmp_path, trace)
    totals = found.ranks[0].totals
    assert found.verdict.label == "inconclusive"
    assert "no launch records" in found.verdict.reason
    assert (totals.hidden_ms, totals.exposed_ms, totals.unknown_phase) == (0.05, 0.05, 2)
    assert (totals.backward_compute_ms, totals.hidden_backward_ms, totals.hidden_other_ms) == (
        None,
        None,
        None,
    )


def test_communication_that_is_no_gradient_gives_no_verdict(tmp_path: Path) -> None:
    trace = TraceBuilder()
    trace.step(5, 0, 1000)
    trace.backward("MmBackward0", 60, 60)
    trace.kernel("gemm", launched=65, start=100, duration=100, thread=AUTOGRAD)
    trace.collective("allreduce", launched=90, start=150, duration=100, elements=ELEMENTS)
    verdict = audited(tmp_path, trace).verdict
    assert verdict.label == "inconclusive"
    assert "can't be told from the rest" in verdict.reason


def test_a_missing_rank_and_mixed_runs_are_said(tmp_path: Path) -> None:
    alone, another = TraceBuilder(rank=0, world_size=4), TraceBuilder(rank=1, world_size=4)
    for trace in (alone, another):
        one_bucket_step(trace, 5, 0, comm=150)
    single = audited(tmp_path, alone)
    assert [w.code for w in single.warnings] == ["ranks-missing"]
    assert "waiting for the other ranks can't be told" in single.verdict.explanation
    assert "ranks-missing" in [w.code for w in audited(tmp_path, alone, another).warnings]
    other = TraceBuilder(rank=1, world_size=2)
    one_bucket_step(other, 5, 0, comm=150)
    assert "different-runs" in [w.code for w in audited(tmp_path, alone, other).warnings]


def test_the_nodes_name_is_the_one_that_torch_writes() -> None:
    assert ACCUMULATE_GRAD == "autograd::engine::evaluate_function: torch::autograd::AccumulateGrad"


def test_backward_passes_that_launch_at_the_same_moment_are_one(tmp_path: Path) -> None:
    """A damaged trace may have forward's compute between two of backward's, all launched at once."""
    trace = TraceBuilder()
    trace.step(5, 0, 2000)
    trace.backward("MmBackward0", 90, 500)
    for start, thread in ((200, AUTOGRAD), (300, MAIN), (400, AUTOGRAD)):
        trace.kernel("gemm", launched=100, start=start, duration=90, thread=thread)
    trace.accumulate_grad(420, 20)
    trace.collective("allreduce", launched=450, start=500, duration=300, elements=ELEMENTS)
    (step,) = audited(tmp_path, trace).ranks[0].steps
    assert (step.hidden_backward_ms, step.exposed_ms) == (0.0, 0.3)
