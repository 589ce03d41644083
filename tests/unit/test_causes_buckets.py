"""Causes that sit in buckets, their sizes, order and place: found, priced exactly, and not taken for their look-alikes.

Steps are laid out to the microsecond; a gradient of MIB elements is a MiB, and takes 1 ms on the wire.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import device_cases
from build_trace import AUTOGRAD, TraceBuilder
from gloo_job import COPY_US, LAUNCH_US, Host, case_of, ddp, lay_out
from stepscope.audit.case import Case, Price
from stepscope.audit.causes import (
    bucket_too_large,
    bucket_too_small,
    find_unused_parameters,
    late_parameter,
    link_bound,
    oversized_last_bucket,
    reduced_outside_backward,
    wait_edge_in_backward,
    warm_up_step,
)
from stepscope.audit.causes.finding import Description, priced
from stepscope.audit.result import Finding
from stepscope.stats import bootstrap_interval

MIB = 262_144
"""Elements of float32."""
US_AN_ELEMENT = 1000 / MIB
HAND_OVER_US = 100
"""What the replay gives a gloo worker to take a collective from its queue, where the link had kept it waiting."""

Program = Callable[[Host], None]


def case(
    folder: Path, program: Program, *, steps: int = 1, latency: float = 0, per_element: float = US_AN_ELEMENT
) -> Case:
    return case_of(folder, lay_out(program, steps=steps, latency=latency, per_element=per_element))


def one(found: list[Finding]) -> Finding:
    assert len(found) == 1, found
    return found[0]


def one_bucket(host: Host) -> None:
    host.forward(2000)
    ddp(host, [MIB] * 12, [(12 * MIB, 11)], node_us=2000)
    host.update(1000)


def test_one_bucket_costs_what_a_smaller_bucket_cap_would_save(tmp_path: Path) -> None:
    """Of 12 ms after backward, 1 is left with a bucket for each MiB; with 2 MiB it would be 2, over 1 % of the step more."""
    found = one(bucket_too_large.detect(case(tmp_path, one_bucket)))
    assert found.cost_ms == pytest.approx(11.0, abs=1e-3)
    assert found.cause == "bucket-too-large"
    assert found.severity == "high"
    assert found.steps == [5]
    assert found.ranks == [0, 1]
    assert found.fix.startswith("DistributedDataParallel(..., bucket_cap_mb=1)")
    assert found.evidence == [
        "all 12.0 MiB of gradients go in 1 bucket of 12 MiB",
        "in step 5 of rank 0 the first is sent 24.2 ms into a backward of 24.2 ms: 0.0 ms are left to hide it behind",
        "the whole model fits into one bucket of DDP's default size, 25 MiB",
    ]


def test_a_price_has_the_interval_of_the_verdicts_cost(tmp_path: Path) -> None:
    steps = case(tmp_path, one_bucket)
    said = Description("mine", "high", [], "none", "none")
    (found,) = priced(steps, Price(3.0, {1: 2.0, 2: 3.0, 3: 3.0, 4: 7.0}), said)
    assert (found.cost_ms, found.cost_ms_ci) == (3.0, bootstrap_interval([2.0, 3.0, 3.0, 7.0]))
    (single,) = priced(steps, Price(3.0, {1: 3.0}), said)
    assert single.cost_ms_ci is None


def test_many_buckets_have_no_bucket_too_large_whatever_the_last_ones_tail(tmp_path: Path) -> None:
    def program(host: Host) -> None:
        host.forward(2000)
        ddp(host, [MIB] * 12, [(4 * MIB, 3), (4 * MIB, 7), (4 * MIB, 11)], node_us=2000)
        host.update(1000)

    assert bucket_too_large.detect(case(tmp_path, program)) == []


def test_gradients_that_all_arrive_at_once_gain_nothing_from_smaller_buckets(tmp_path: Path) -> None:
    """As of a compiled backward in one piece."""

    def program(host: Host) -> None:
        host.forward(2000)
        host.node(24_000)
        ddp(host, [MIB] * 12, [(12 * MIB, 11)], node_us=2)
        host.update(1000)

    assert bucket_too_large.detect(case(tmp_path, program)) == []


def many_buckets(host: Host) -> None:
    sizes = [1000, 1000, 1000, 30_000] * 8
    host.forward(2000)
    ddp(host, sizes, [(size, place) for place, size in enumerate(sizes)], node_us=100)
    host.update(1000)


def test_buckets_that_are_mostly_latency_cost_what_sending_them_together_saves(tmp_path: Path) -> None:
    """32 collectives of 400 us latency each keep the link busy long after backward; of two, one is hidden behind it.

    Of what the host takes to launch 32, two thirty-seconds are left.
    """
    found = one(bucket_too_small.detect(case(tmp_path, many_buckets, latency=400, per_element=0.001)))
    assert found.evidence == [
        "32 buckets in a backward pass, 3.9 KiB in the median, 1.0 MiB in all",
        "a collective takes 0.4 ms whatever it carries, and its median bytes 0.0 ms",
    ]
    assert found.fix.startswith("DistributedDataParallel(..., bucket_cap_mb=0.5)")
    first_launch, last_launch = 120.0, 31.0 * (120 + LAUNCH_US) + 120
    copied_after = 15 * COPY_US
    last_launch -= 31 * LAUNCH_US * (32 - 2) / 32
    before, after = first_launch + 32 * 400 + 264, last_launch + 400 + 132 + copied_after
    assert found.cost_ms == pytest.approx((before - after) / 1e3, abs=1e-3)


def test_small_reductions_that_no_reducer_launched_are_no_small_buckets(tmp_path: Path) -> None:
    def program(host: Host) -> None:
        host.forward(2000)
        for _ in range(32):
            host.node(100)
            host.gradient(30_000, copied=False)
        for number in range(32):
            host.collective("all_reduce", 30_000 if number % 2 else 1000)
        host.update(1000)

    assert bucket_too_small.detect(case(tmp_path, program, latency=400, per_element=0.001)) == []


def late_first_bucket(host: Host) -> None:
    """The first bucket's last gradient comes at the very end, and DDP sends no other before it."""
    host.forward(2000)
    ddp(host, [MIB] * 11 + [1000], [(4 * MIB + 1000, 11), (4 * MIB, 11), (3 * MIB, 11)], node_us=2000)
    host.update(1000)


def test_complete_buckets_behind_a_late_parameter_cost_what_order_of_arrival_saves(tmp_path: Path) -> None:
    """11 ms of transfer after backward; filled as they arrive, buckets of 4 MiB leave the last one's 3 MiB and a bit.

    Two of the three copies out of the buckets, which were made while the last was on the wire, then follow it.
    """
    found = one(late_parameter.detect(case(tmp_path, late_first_bucket)))
    assert found.evidence[0] == "2 of 3 buckets were complete and not sent"
    copied_before = 2 * COPY_US / 1e3
    assert found.cost_ms == pytest.approx(8.0 - copied_before, abs=1e-3)


def test_the_order_that_ddp_kept_does_not_make_a_late_parameter_cheap(tmp_path: Path) -> None:
    """The run tells in which order DDP fills buckets: the late one first, as they were recorded."""
    numels = enumerate([MIB] * 11 + [1000])
    order = [[0, 1, 2, 3, 11], [*range(4, 11)]]
    module = {"in_ready_order": True, "rebuilt": True, "rebuilt_bucket_parameters": order}
    module["parameters"] = [
        {"index": k, "name": f"layers.{k}", "numel": numel, "dtype": "float32"} for k, numel in numels
    ]
    untold = case(tmp_path, late_first_bucket)
    told = device_cases.case_of(untold.recordings, {"ddp": [module]})
    named, unnamed = one(late_parameter.detect(told)), one(late_parameter.detect(untold))
    assert named.cost_ms == unnamed.cost_ms
    late = "bucket 0 waits for layers.11, the last of its gradients to arrive"
    assert named.evidence == [*unnamed.evidence, late]


def test_buckets_that_wait_for_a_busy_link_are_not_held_up_by_a_parameter(tmp_path: Path) -> None:
    def program(host: Host) -> None:
        host.forward(2000)
        ddp(host, [MIB] * 6, [(2 * MIB, 1), (2 * MIB, 3), (2 * MIB, 5)], node_us=500)
        host.update(1000)

    assert late_parameter.detect(case(tmp_path, program)) == []


def find_unused(host: Host) -> None:
    """Buckets in the order of registration, which is not that of backward: the first is complete last."""
    host.forward(2000)
    host.work("torch.distributed.ddp.reducer::search_unused_parameters", 700)
    ddp(host, [MIB] * 12, [(4 * MIB, 11), (4 * MIB, 11), (4 * MIB, 11)], node_us=2000)
    host.collective("all_reduce", 12, "int")
    host.update(1000)


def test_find_unused_costs_its_search_and_the_order_that_it_keeps(tmp_path: Path) -> None:
    """8 of 12 ms after backward would be hidden, 0.7 ms of search and the map's all-reduce would not be."""
    found = one(find_unused_parameters.detect(case(tmp_path, find_unused)))
    assert found.cost_ms == pytest.approx(8.0 + 0.7, abs=1e-3)
    assert found.evidence[0] == "DDP searches the graph for unused parameters, 0.7 ms a step"
    assert "2 of 3 buckets were complete and not sent" in found.evidence[2]
    assert late_parameter.detect(case(tmp_path, find_unused)) == []


def test_a_search_that_costs_next_to_nothing_is_no_finding(tmp_path: Path) -> None:
    def program(host: Host) -> None:
        host.forward(2000)
        host.work("torch.distributed.ddp.reducer::search_unused_parameters", 70)
        ddp(host, [MIB] * 12, [(6 * MIB, 5), (6 * MIB, 11)], node_us=2000)
        host.update(1000)

    assert find_unused_parameters.detect(case(tmp_path, program)) == []


def by_hand(host: Host) -> None:
    host.forward(2000)
    for _ in range(12):
        host.node(2000)
        host.gradient(MIB, copied=False)
    for _ in range(12):
        host.collective("all_reduce", MIB)
        host.work("aten::div_", 5)
    host.update(1000)


def test_a_loop_after_backward_costs_what_buckets_within_it_save(tmp_path: Path) -> None:
    """All 12 ms of transfer follow backward, 1 of them would with buckets of a MiB."""
    found = one(reduced_outside_backward.detect(case(tmp_path, by_hand)))
    assert found.cost_ms == pytest.approx(11.0, abs=0.2)
    assert found.evidence[0].startswith(
        "12.0 MiB of gradients are reduced after backward: 12 collectives of 1, 1, 1"
    )
    assert bucket_too_large.detect(case(tmp_path, by_hand)) == []
    assert late_parameter.detect(case(tmp_path, by_hand)) == []


def test_one_bucket_of_the_reducers_is_not_reduced_outside_backward(tmp_path: Path) -> None:
    assert reduced_outside_backward.detect(case(tmp_path, one_bucket)) == []


def large_last(host: Host) -> None:
    host.forward(2000)
    ddp(host, [MIB] * 4 + [8 * MIB], [(2 * MIB, 1), (2 * MIB, 3), (8 * MIB, 4)], node_us=2000)
    host.update(1000)


def test_an_oversized_last_bucket_costs_what_it_has_over_the_others(tmp_path: Path) -> None:
    """8 ms of transfer with nothing to hide behind, of which 2 would be the floor with a bucket like the others."""
    found = one(oversized_last_bucket.detect(case(tmp_path, large_last)))
    assert found.cost_ms == pytest.approx(6.0, abs=1e-3)
    assert (
        found.evidence[0]
        == "the last bucket holds 8.0 MiB, the others 2.0 MiB in the median; one parameter is 8.0 MiB of it"
    )


def test_the_oversized_parameter_is_named_where_the_run_tells_its_size(tmp_path: Path) -> None:
    plain = case(tmp_path, large_last)
    table = {"name": "embedding.weight", "numel": 8 * MIB}
    for others, said in (
        ([], "one parameter, embedding.weight,"),
        ([table | {"name": "head"}], "one parameter"),
    ):
        run = {"ddp": [{"in_ready_order": False, "parameters": [table, *others]}]}
        found = one(oversized_last_bucket.detect(device_cases.case_of(plain.recordings, run)))
        assert f"; {said} is 8.0 MiB of it" in found.evidence[0]


def test_a_small_bucket_may_follow_the_oversized_one(tmp_path: Path) -> None:
    """DDP closes the bucket of the large parameter at once; what is left makes up a bucket of its own."""

    def program(host: Host) -> None:
        host.forward(2000)
        sent = [(2 * MIB, place) for place in (1, 3, 5, 7, 9)] + [(8 * MIB, 10), (1000, 11)]
        ddp(host, [MIB] * 10 + [8 * MIB, 1000], sent, node_us=2000)
        host.update(1000)

    found = one(oversized_last_bucket.detect(case(tmp_path, program)))
    assert found.evidence[0].startswith("the last bucket holds 8.0 MiB, the others 2.0 MiB in the median")


def test_the_last_buckets_tail_is_the_floor_and_no_fault(tmp_path: Path) -> None:
    def program(host: Host) -> None:
        host.forward(2000)
        ddp(host, [MIB] * 6, [(2 * MIB, 1), (2 * MIB, 3), (2 * MIB, 5)], node_us=2000)
        host.update(1000)

    laid_out = case(tmp_path, program)
    detectors = (
        bucket_too_large,
        bucket_too_small,
        late_parameter,
        oversized_last_bucket,
        link_bound,
        wait_edge_in_backward,
        reduced_outside_backward,
    )
    assert [found for detector in detectors for found in detector.detect(laid_out)] == []


def test_gradients_that_do_not_fit_into_backward_cost_all_that_their_transfers_do(tmp_path: Path) -> None:
    """12 ms on the wire, from 2 020 us after the start of a backward of 6 075 on."""

    def program(host: Host) -> None:
        host.forward(2000)
        ddp(host, [MIB] * 12, [(4 * MIB, 3), (4 * MIB, 7), (4 * MIB, 11)], node_us=485)
        host.update(1000)

    found = one(link_bound.detect(case(tmp_path, program)))
    before = 4 * 505 + 12_000
    after = 12 * 505 + 2 * LAUNCH_US + HAND_OVER_US
    assert found.cost_ms == pytest.approx((before - after) / 1e3, abs=1e-3)
    assert (
        found.evidence[0]
        == "12.0 MiB of gradients take 12.0 ms on the wire at 1.05 GB/s, and backward lasts 6.1 ms"
    )


def waiting_hook(host: Host) -> None:
    host.forward(2000)
    ddp(host, [MIB] * 6, [(2 * MIB, 1), (2 * MIB, 3), (2 * MIB, 5)], node_us=2000, waits=True)
    host.update(1000)


def test_a_hook_that_waits_costs_the_transfers_that_backward_stood_still_for(tmp_path: Path) -> None:
    """Two of three buckets would have been hidden: 2 ms each, less the launch; the last one is waited for in any case."""
    found = one(wait_edge_in_backward.detect(case(tmp_path, waiting_hook)))
    assert found.cost_ms == pytest.approx(2 * (2000 - LAUNCH_US) / 1e3, abs=1e-3)
    assert found.evidence[0].startswith(
        "backward stands still 2 times until one of its 3 collectives is over"
    )


def test_warm_up_steps_are_a_finding_only_where_there_are_no_others(tmp_path: Path) -> None:
    """A first step in one bucket, as DDP has it: 12 ms after backward, 1 with buckets of a MiB."""
    traces = lay_out(one_bucket, steps=2, per_element=US_AN_ELEMENT)
    with_others = case_of(tmp_path, renumbered(traces, 5, 0))
    assert warm_up_step.detect(with_others) == []
    alone = case_of(tmp_path, renumbered(lay_out(one_bucket, per_element=US_AN_ELEMENT), 5, 0))
    found = one(warm_up_step.detect(alone))
    assert found.cost_ms == pytest.approx(11.0, abs=1e-3)
    assert found.evidence[0].startswith("step 0: warm-up: the first step of the run")
    assert bucket_too_large.detect(alone) == []


def test_static_graphs_second_step_alone_is_warm_up_where_the_run_says_so(tmp_path: Path) -> None:
    traces = renumbered(lay_out(one_bucket, per_element=US_AN_ELEMENT), 5, 1)
    static = {"ddp": [{"static_graph": True, "in_ready_order": False}]}
    told = device_cases.case_of(case_of(tmp_path, traces).recordings, static)
    assert one(warm_up_step.detect(told)).cost_ms == pytest.approx(11.0, abs=1e-3)
    assert bucket_too_large.detect(told) == []


def renumbered(traces: list[TraceBuilder], old: int, new: int) -> list[TraceBuilder]:
    for trace in traces:
        for event in trace.events:
            if event["name"] == f"ProfilerStep#{old}":
                event["name"] = f"ProfilerStep#{new}"
    return traces


def test_without_shapes_nothing_that_needs_sizes_is_claimed(tmp_path: Path) -> None:
    traces = lay_out(one_bucket, per_element=US_AN_ELEMENT)
    for trace in traces:
        for event in trace.events:
            event.get("args", {}).pop("Input Dims", None)
    blind = case_of(tmp_path, traces)
    assert bucket_too_large.detect(blind) == []
    assert oversized_last_bucket.detect(blind) == []


def test_a_gpu_step_of_one_bucket_is_priced_on_the_devices_clock(tmp_path: Path) -> None:
    """The host ran ahead; gradients were there when their kernels had run."""
    traces = []
    for rank in range(2):
        trace = TraceBuilder(rank=rank, world_size=2)
        trace.step(5, 0, 20_000)
        for place in range(4):
            launched = 100 + 100 * place
            trace.backward("MmBackward0", launched, 40)
            trace.kernel(
                "gemm", launched=launched + 5, start=1000 + 3000 * place, duration=2990, thread=AUTOGRAD
            )
            trace.accumulate_grad(launched + 50, 45)
            trace.cpu_op(
                "torch::autograd::AccumulateGrad",
                launched + 51,
                1,
                thread=AUTOGRAD,
                dims=[[MIB]],
                types=["float"],
            )
            trace.kernel(
                "mul", launched=launched + 55, start=3990 + 3000 * place, duration=10, thread=AUTOGRAD
            )
        trace.collective("allreduce", launched=485, start=13_000, duration=4000, elements=4 * MIB)
        trace.runtime("cudaDeviceSynchronize", 600, 16_410)
        traces.append(trace)
    found = one(bucket_too_large.detect(case_of(tmp_path, traces)))
    assert found.cost_ms == pytest.approx(3.0, abs=1e-3)
