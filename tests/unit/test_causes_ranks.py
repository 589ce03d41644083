"""Causes that sit between ranks and beside the gradients: stragglers, and collectives that need not be.

Steps are laid out to the microsecond; a gradient of MIB elements is a MiB, and takes 1 ms on the wire.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from gloo_job import Host, case_of, ddp, lay_out
from stepscope.audit.case import Case, Price
from stepscope.audit.causes import (
    extra_collectives,
    forward_collectives,
    input_skew,
    link_bound,
    straggler,
    zero1_parameter_broadcast,
)
from stepscope.audit.causes.finding import MINIMUM_SHARE, Description, priced
from stepscope.audit.result import Finding

MIB = 262_144
"""Elements of float32."""
US_AN_ELEMENT = 1000 / MIB
HAND_OVER_US = 100
"""What the replay gives a gloo worker to take a collective from its queue, where it is sent earlier than it was."""

Program = Callable[[Host], None]


def case(folder: Path, program: Program, *, ranks: int = 2, steps: int = 3) -> Case:
    return case_of(folder, lay_out(program, ranks=ranks, steps=steps, per_element=US_AN_ELEMENT))


def one(found: list[Finding]) -> Finding:
    assert len(found) == 1, found
    return found[0]


def reduce(host: Host, idle: float = 0, node_us: float = 1000) -> None:
    ddp(host, [MIB] * 4, [(2 * MIB, 1), (2 * MIB, 3)], node_us=node_us, idle={2: idle})


def test_a_rank_that_got_less_of_the_processors_of_its_machine_is_not_blamed(tmp_path: Path) -> None:
    """The same operators on the same shapes take it longer; on a machine of its own that is its machine's fault."""

    def program(host: Host) -> None:
        host.forward(2000)
        reduce(host, node_us=5000 if host.rank == 1 else 1000)
        host.update(1000)

    traces = lay_out(program, steps=3, per_element=US_AN_ELEMENT)
    for machine, blamed in (("another", [[1]]), ("one", [])):
        for trace, host_name in zip(traces, ("one", machine), strict=True):
            trace.header["host_name"] = host_name
        assert [found.ranks for found in straggler.detect(case_of(tmp_path, traces))] == blamed


def test_a_rank_with_more_work_is_blamed_on_a_machine_that_it_shares(tmp_path: Path) -> None:
    def program(host: Host) -> None:
        host.forward(2000)
        for _ in range(2 if host.rank == 1 else 1):
            host.node(1000)
        reduce(host, node_us=5000 if host.rank == 1 else 1000)
        host.update(1000)

    traces = lay_out(program, steps=3, per_element=US_AN_ELEMENT)
    for trace in traces:
        trace.header["host_name"] = "one"
    assert one(straggler.detect(case_of(tmp_path, traces))).ranks == [1]


def test_time_lost_in_backward_by_one_of_four_ranks_is_named_by_rank_phase_and_size(tmp_path: Path) -> None:
    """All four then meet 200 ms later in the second bucket, and would not."""

    def program(host: Host) -> None:
        host.forward(2000)
        reduce(host, idle=200_000 if host.rank == 2 else 0)
        host.update(1000)

    found = one(straggler.detect(case(tmp_path, program, ranks=4)))
    assert found.cause == "straggler"
    assert found.ranks == [2]
    assert found.steps == [5, 6, 7]
    assert found.cost_ms == pytest.approx(200.0, abs=1e-3)
    assert found.evidence == [
        "rank 2 takes 200 ms longer in backward than the other ranks' median, in 3 of 3 steps",
        "instead, its main thread spends 200 ms without an operator, in backward, after aten::mm, "
        "within AddmmBackward0",
    ]


def test_a_straggler_is_no_slow_link(tmp_path: Path) -> None:
    def program(host: Host) -> None:
        host.forward(2000)
        reduce(host, idle=200_000 if host.rank == 1 else 0)
        host.update(1000)

    assert link_bound.detect(case(tmp_path, program)) == []


def test_a_rank_whose_operators_all_take_longer_is_a_straggler_without_a_place(tmp_path: Path) -> None:
    """Each of its four nodes takes 5 ms instead of 1: the last bucket is 16 ms later for both."""

    def program(host: Host) -> None:
        host.forward(2000)
        reduce(host, node_us=5000 if host.rank == 1 else 1000)
        host.update(1000)

    found = one(straggler.detect(case(tmp_path, program)))
    assert found.ranks == [1]
    assert found.confidence.startswith("medium")
    assert "16.0 ms longer in backward" in found.evidence[0]
    assert found.cost_ms == pytest.approx(16.0, rel=0.05)


def test_of_two_steps_slower_operators_are_chance_and_an_idle_stretch_is_a_doubtful_finding(
    tmp_path: Path,
) -> None:
    def all_over(host: Host) -> None:
        host.forward(2000)
        reduce(host, node_us=5000 if host.rank == 1 else 1000)
        host.update(1000)

    def in_one_place(host: Host) -> None:
        host.forward(2000)
        reduce(host, idle=50_000 if host.rank == 1 else 0)
        host.update(1000)

    assert straggler.detect(case(tmp_path, all_over, steps=2)) == []
    found = one(straggler.detect(case(tmp_path, in_one_place, steps=2)))
    assert found.confidence == "low: of 2 steps only; record more"


def test_a_rank_that_comes_late_to_forward_is_input_skew_and_no_straggler(tmp_path: Path) -> None:
    def program(host: Host) -> None:
        host.idle(30_000 if host.rank == 1 else 100)
        host.forward(2000)
        reduce(host)
        host.update(1000)

    skewed = case(tmp_path, program)
    found = one(input_skew.detect(skewed))
    assert found.ranks == [1]
    assert found.cost_ms == pytest.approx(29.9 - HAND_OVER_US / 1e3, abs=1e-3)
    assert found.evidence[0].startswith("rank 1 takes 29.9 ms longer in input")
    assert straggler.detect(skewed) == []


@pytest.mark.parametrize("ranks", [2, 4])
def test_a_rank_that_is_late_in_the_update_costs_all_of_what_the_others_wait_in_the_next_step(
    ranks: int, tmp_path: Path
) -> None:
    def program(host: Host) -> None:
        host.forward(2000)
        reduce(host)
        host.idle(400_000 if host.rank == 1 else 0)
        host.update(1000)

    found = one(straggler.detect(case(tmp_path, program, ranks=ranks)))
    assert found.ranks == [1]
    assert found.cost_ms == pytest.approx(400.0, rel=0.02)
    place = "after backward, before the optimizer's step"
    assert found.evidence[1] == f"instead, its main thread spends 400 ms without an operator, {place}"


def test_where_a_rank_idles_is_told_by_the_scripts_own_names_and_not_by_those_of_torchs_machinery(
    tmp_path: Path,
) -> None:
    def program(host: Host) -> None:
        host.forward(2000)
        reduce(host)
        host.trace.annotation("write_checkpoint", host.now, 50_000 if host.rank == 1 else 5)
        host.idle(50_000 if host.rank == 1 else 5)
        host.update(1000)

    place = one(straggler.detect(case(tmp_path, program))).evidence[1]
    assert place.endswith(
        " an operator, after backward, before the optimizer's step, within write_checkpoint"
    )


def test_a_rank_that_is_late_in_the_update_costs_no_more_than_until_another_ones_forward_is_over(
    tmp_path: Path,
) -> None:
    """Without its 40 ms the ranks still meet 30 ms later than with the other's forward as quick as its own."""

    def program(host: Host) -> None:
        host.forward(32_000 if host.rank == 0 else 2000)
        reduce(host)
        host.idle(40_000 if host.rank == 1 else 0)
        host.update(1000)

    found = {tuple(f.ranks): f for f in straggler.detect(case(tmp_path, program))}
    assert found[1,].cost_ms == pytest.approx(10.0, abs=0.5)
    assert (0,) not in found


def test_input_that_is_late_on_every_rank_is_no_skew(tmp_path: Path) -> None:
    def program(host: Host) -> None:
        host.idle(30_000)
        host.forward(2000)
        reduce(host)
        host.update(1000)

    assert input_skew.detect(case(tmp_path, program)) == []


def test_who_is_slower_in_all_steps_but_one_is_jitter(tmp_path: Path) -> None:
    slow = {0: iter([0, 0, 0, 5000, 0]), 1: iter([5000, 5000, 5000, 0, 5000])}
    delays = {rank: list(found) for rank, found in slow.items()}

    def program(host: Host) -> None:
        step = sum(event["name"].startswith("ProfilerStep") for event in host.trace.events)
        host.forward(2000)
        reduce(host, idle=delays[host.rank][step])
        host.update(1000)

    assert straggler.detect(case(tmp_path, program, steps=5)) == []


def test_a_rank_that_is_slow_where_nobody_waits_for_it_costs_nothing(tmp_path: Path) -> None:
    """Rank 1 loses 3 ms in forward and rank 0 in backward: both meet at the same time as without either."""

    def program(host: Host) -> None:
        host.forward(2000 + 3000 * (host.rank == 1))
        reduce(host, idle=3000 * (host.rank == 0))
        host.update(1000)

    found = straggler.detect(case(tmp_path, program))
    assert sum(finding.cost_ms or 0 for finding in found) < 3.1


def test_buffers_broadcast_in_forward_cost_their_transfer(tmp_path: Path) -> None:
    """4 MiB take 4 ms with nothing beside them, and the call that launched them and its hand-over go too."""

    def program(host: Host) -> None:
        host.forward(2000, inside=lambda host: host.collective("broadcast", 4 * MIB))
        reduce(host)
        host.update(1000)

    found = one(forward_collectives.detect(case(tmp_path, program)))
    assert found.cost_ms == pytest.approx(4.0 + 2 * HAND_OVER_US / 1e3, abs=1e-3)
    assert found.fix.startswith("DistributedDataParallel(..., broadcast_buffers=False)")
    assert (
        found.evidence[0]
        == "1 a step: broadcast (buffer), 4.0 MiB in all; they last 4.0 ms, waiting included"
    )


def test_ddps_agreement_on_new_buckets_is_no_buffer(tmp_path: Path) -> None:
    def program(host: Host) -> None:
        host.forward(2000, inside=lambda host: host.collective("broadcast", MIB, "int"))
        reduce(host)
        host.update(1000)

    assert forward_collectives.detect(case(tmp_path, program, steps=1)) == []


def synchronised_norms(host: Host) -> None:
    """SyncBatchNorm gathers statistics in forward and reduces their gradients in backward."""
    host.forward(2000, inside=lambda host: host.collective("all_gather", MIB // 4))
    start = host.now
    host.collective("all_reduce", 512)
    host.trace.cpu_op("autograd::engine::evaluate_function: SyncBatchNormBackward", start, host.now - start)
    reduce(host)
    host.update(1000)


def test_statistics_that_norms_share_are_forwards_and_no_metric(tmp_path: Path) -> None:
    norms = case(tmp_path, synchronised_norms)
    found = one(forward_collectives.detect(norms))
    assert "torch.nn.SyncBatchNorm" in found.fix
    assert extra_collectives.detect(norms) == []


def test_embeddings_that_ranks_exchange_in_forward_are_part_of_the_model(tmp_path: Path) -> None:
    def program(host: Host) -> None:
        host.forward(2000, inside=lambda host: host.collective("all_gather", MIB))
        reduce(host)
        host.update(1000)

    assert forward_collectives.detect(case(tmp_path, program)) == []


def metrics(host: Host) -> None:
    host.forward(2000)
    for _ in range(8):
        host.collective("all_reduce", 64)
    reduce(host)
    host.update(1000)


def test_metrics_reduced_in_every_step_cost_what_they_take(tmp_path: Path) -> None:
    """Eight of 200 us latency each; the calls go with them."""
    traces = lay_out(metrics, steps=3, latency=200, per_element=US_AN_ELEMENT)
    found = one(extra_collectives.detect(case_of(tmp_path, traces)))
    assert found.cost_ms == pytest.approx(8 * (0.2 + 64 * US_AN_ELEMENT / 1e3), abs=2e-3)
    assert found.evidence[0].startswith("8 a step: all_reduce (metric), 2.0 KiB in all")


def test_pythons_way_into_a_metrics_call_and_out_of_it_goes_with_it(tmp_path: Path) -> None:
    """30 us until the operator and 40 from the transfer's end to whatever the thread does next, for each of eight."""

    def program(host: Host) -> None:
        host.forward(2000)
        for _ in range(8):
            host.idle(30)
            host.collective("all_reduce", 64)
            host.idle(40)
            host.work("aten::item", 5)
        reduce(host)
        host.update(1000)

    traces = lay_out(program, steps=3, latency=200, per_element=US_AN_ELEMENT)
    found = one(extra_collectives.detect(case_of(tmp_path, traces)))
    assert found.cost_ms == pytest.approx(8 * (0.03 + 0.04 + 0.2 + 64 * US_AN_ELEMENT / 1e3), abs=2e-3)


def test_a_metric_that_costs_next_to_nothing_is_no_finding(tmp_path: Path) -> None:
    def program(host: Host) -> None:
        host.forward(2000)
        host.collective("all_reduce", 1)
        reduce(host)
        host.update(1000)

    assert extra_collectives.detect(case(tmp_path, program)) == []


def test_a_metric_does_not_pay_for_the_straggler_that_it_waits_for(tmp_path: Path) -> None:
    """Without it the ranks meet as late in the first bucket."""

    def program(host: Host) -> None:
        host.forward(2000 + 20_000 * (host.rank == 1))
        host.collective("all_reduce", 1)
        reduce(host)
        host.update(1000)

    late = case(tmp_path, program)
    assert extra_collectives.detect(late) == []
    assert one(straggler.detect(late)).cost_ms == pytest.approx(20.0, rel=0.02)


def test_parameters_that_zero_1_sends_cost_their_transfer(tmp_path: Path) -> None:
    def send(host: Host) -> None:
        for _ in range(4):
            host.collective("broadcast", MIB)

    def program(host: Host) -> None:
        host.forward(2000)
        reduce(host)
        host.update(1000, inside=send)

    found = one(zero1_parameter_broadcast.detect(case(tmp_path, program)))
    assert found.cost_ms == pytest.approx(4.0, abs=1e-3)
    assert found.evidence == [
        "4 a step: broadcast (parameter), 4.0 MiB in all; they last 4.0 ms, waiting included",
        "launched within Optimizer.step, which waits for them",
    ]


@pytest.mark.parametrize(
    ("share", "severity"), [(0.009, None), (0.011, "low"), (0.029, "low"), (0.031, "medium"), (0.11, "high")]
)
def test_severity_is_the_share_of_the_step_and_below_one_percent_nothing_is_found(
    tmp_path: Path, share: float, severity: str | None
) -> None:
    job = case(tmp_path, metrics)
    assert job.step_ms is not None
    price = Price(ms=share * job.step_ms, by_step={5: share * job.step_ms, 6: 0.0})
    found = priced(job, price, Description("some-cause", "high: a test", ["seen"], "set it", "somewhere"))
    assert [finding.severity for finding in found] == ([severity] if severity else [])
    assert all(finding.steps == [5] for finding in found)
    assert MINIMUM_SHARE == 0.01


def test_a_cause_without_a_price_is_no_finding(tmp_path: Path) -> None:
    job = case(tmp_path, metrics)
    assert priced(job, None, Description("some-cause", "high: a test", [], "set it", "somewhere")) == []
