"""What other buckets, links and ranks make of a recorded step: exact, on steps that are laid out to the microsecond.

A gradient of MIB elements is a MiB, and takes 1 ms on the wire.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gloo_job import COPY_US, Host, case_of, ddp, lay_out
from measured_runs import calibration, fit, write_calibration
from stepscope.audit.build import audit
from stepscope.audit.cap_rule import CAPS_MIB, Candidate, choose
from stepscope.audit.case import Case
from stepscope.audit.causes import bucket_too_large
from stepscope.audit.outcome import Outcome, Rebucketing
from stepscope.audit.recommend import recommend
from stepscope.errors import InputError
from stepscope.predict.caps import CapPredictor, bucket_caps
from stepscope.predict.link import Wanted
from stepscope.predict.result import Predicted
from stepscope.predict.whatif import Question, predict
from stepscope.replay.contended import Contended, slowdown

MIB = 262_144
"""Elements of float32."""
US_AN_ELEMENT = 1000 / MIB


def one_bucket(host: Host) -> None:
    """12 gradients of a MiB, 2 ms apart, in one bucket: 12 ms on the wire after backward."""
    host.forward(2000)
    ddp(host, [MIB] * 12, [(12 * MIB, 11)], node_us=2000)
    host.update(1000)


def two_buckets(host: Host) -> None:
    host.forward(2000)
    ddp(host, [MIB] * 12, [(8 * MIB, 7), (4 * MIB, 11)], node_us=2000)
    host.update(1000)


def by_default(host: Host) -> None:
    """As DDP cuts them unless it is told a cap."""
    host.forward(2000)
    ddp(host, [MIB] * 12, [(MIB, 0), (11 * MIB, 11)], node_us=2000)
    host.update(1000)


def case(
    folder: Path, program: Callable[[Host], None], *, ranks: int = 2, steps: int = 3, latency: float = 0
) -> Case:
    return case_of(
        folder, lay_out(program, ranks=ranks, steps=steps, latency=latency, per_element=US_AN_ELEMENT)
    )


def asked(made: Case, *caps: float, **otherwise: Any) -> Predicted:
    return predict(made, "runs/demo", Question(caps, **otherwise))


def test_a_step_is_as_long_as_the_buckets_of_a_cap_would_make_it(tmp_path: Path) -> None:
    """Backward ends at 26.24 ms, a bucket of n MiB is over n ms later; then a copy out and 1 ms of optimizer."""
    made = CapPredictor(case(tmp_path, one_bucket)).predict([1, 2, 4, 12, 100])
    assert [one.buckets for one in made] == [12, 6, 3, 1, 1]
    assert [one.bucket_bytes[0] / 2**20 for one in made] == [1, 2, 4, 12, 12]
    after_backward = (COPY_US + 1000) / 1e3
    expected = [26.24 + tail + after_backward for tail in (1, 2, 4, 12, 12)]
    assert [one.step_ms for one in made] == pytest.approx(expected, abs=0.01)
    assert [one.floor_ms for one in made] == pytest.approx([1, 2, 4, 12, 12], abs=0.01)
    assert [one.gain_ms for one in made] == pytest.approx([11, 10, 8, 0, 0], abs=0.01)
    assert made[0].gain_ms_ci == pytest.approx((11, 11), abs=0.01)


def test_the_recorded_cap_gives_the_recorded_step_back(tmp_path: Path) -> None:
    made = CapPredictor(case(tmp_path, two_buckets)).predict([8])
    assert made[0].bucket_bytes == [8 << 20, 4 << 20]
    assert made[0].gain_ms == pytest.approx(0, abs=0.02)


def test_the_buckets_of_ddps_default_are_not_those_of_25_mib(tmp_path: Path) -> None:
    """DDP's default has 1 MiB for the first bucket: cut anew, the recorded caps give the recorded step; 25 MiB is one bucket."""
    made_so = case(tmp_path, by_default)
    run = {
        "ddp": [
            {"bucket_cap_bytes": 25 << 20, "bucket_caps_bytes": [1 << 20, 25 << 20], "in_ready_order": False}
        ]
    }
    made = asked(replace(made_so, run=run), 25)
    assert (made.recorded.bucket_cap_mb, made.recorded.first_bucket_cap_mb) == (25, 1)
    assert made.recorded.check_ms == pytest.approx(0, abs=0.02)
    assert made.caps[0].bucket_bytes == [12 << 20]
    assert made.caps[0].gain_ms == pytest.approx(-1, abs=0.02)


def test_no_cap_beats_the_best_schedule(tmp_path: Path) -> None:
    made = asked(case(tmp_path, one_bucket, latency=300), 0.001, 1, 25)
    assert all(one.step_ms >= made.best_schedule.step_ms for one in made.caps)
    assert made.best_schedule.buckets == 12


def test_the_middle_of_the_caps_that_cannot_be_told_from_the_best_is_recommended() -> None:
    """Of a step of 100 ms 1 % is noise; caps of the same buckets count once, as the one closest to DDP's 25 MiB."""

    def candidate(cap: float, buckets: int, *gains: float) -> Candidate:
        return Candidate(cap, [1] * buckets, {step: ms * 1e6 for step, ms in enumerate(gains)})

    plateau = [
        candidate(0.5, 24, 9.5, 9.7, 9.6),
        candidate(1, 12, 9.9, 10.1, 10.0),
        candidate(2, 12, 9.9, 10.1, 10.0),
        candidate(5, 5, 9.2, 9.4, 9.3),
        candidate(10, 2, 8.5, 8.7, 8.6),
        candidate(100, 1, 0, 0, 0),
    ]
    chosen = choose(plateau, 100e6)
    assert (chosen.cap_mb, chosen.alike_mb) == (2, (0.5, 2, 5))
    assert chosen.why == (
        "0.5, 1 or 2 (the same buckets) and 5 MiB can't be told apart, and this is the middle of them"
    )
    assert choose(plateau[2:], 100e6).cap_mb == 5, "of two the larger"
    alone = choose([plateau[1], plateau[4]], 100e6)
    assert (alone.cap_mb, alone.why) == (1, "no other cap comes within 1 % of that step")
    twins = choose([plateau[1], plateau[2], plateau[4]], 100e6)
    assert twins.why == "1 or 2 MiB give the same buckets, and no other cap comes within 1 % of that step"


def test_a_cap_whose_steps_now_win_and_now_lose_is_not_told_from_the_best() -> None:
    best = Candidate(1, [1, 1], {0: 10e6, 1: 12e6, 2: 11e6})
    unsteady = Candidate(5, [2], {0: 11e6, 1: 9e6, 2: 8e6})
    assert choose([best, unsteady], 100e6).alike_mb == (1, 5)


def test_the_present_cap_stays_where_the_gain_is_no_more_than_noise() -> None:
    assert choose([Candidate(1, [1], {0: 0.9e6, 1: 0.9e6})], 100e6).cap_mb is None
    now_and_then = choose([Candidate(1, [1], {0: 5e6, 1: 6e6, 2: -1e6})], 100e6)
    assert now_and_then.cap_mb is None
    assert now_and_then.why == "in some of the recorded steps 1 MiB would have gained nothing"
    assert choose([], 100e6).cap_mb is None
    assert choose([Candidate(25, [9, 3], {0: 5e6, 1: 5e6})], 100e6, present=[9, 3]).cap_mb is None, (
        "no change"
    )


def test_nothing_is_recommended_where_no_cap_gains_anything(tmp_path: Path) -> None:
    def already_good(host: Host) -> None:
        host.forward(2000)
        ddp(host, [MIB] * 12, [(MIB, place) for place in range(12)], node_us=2000)
        host.update(1000)

    good = case(tmp_path, already_good)
    assert asked(good, 1, 2, 25).recommended_mb is None
    assert recommend(good) is None


@pytest.mark.parametrize(
    "unprofiled_ms", [pytest.param(None, id="of traces"), pytest.param(30.0, id="of a run")]
)
def test_an_audit_recommends_what_predict_does(tmp_path: Path, unprofiled_ms: float | None) -> None:
    """The same cap, step and gain: those of a step that was not recorded, where the run has one."""
    run = {"profiler_cost": {"unprofiled_ms": unprofiled_ms}} if unprofiled_ms else None
    made = replace(case(tmp_path, one_bucket), run=run)
    found, predicted = recommend(made), asked(made, *CAPS_MIB)
    assert found is not None
    assert (found.bucket_cap_mb, found.buckets, found.alike_mb) == (1, 12, [1])
    assert predicted.recommended_mb == 1
    (same,) = (one for one in predicted.caps if one.bucket_cap_mb == 1)
    assert (found.step_ms, found.gain_ms, found.gain_ms_ci) == (same.step_ms, same.gain_ms, same.gain_ms_ci)
    assert found.gain_ms == pytest.approx(11, abs=0.01)
    assert found.late_start_ms == pytest.approx(0, abs=0.01)
    assert found.contention_ms is None


def test_where_no_finding_is_worth_it_the_predicted_cap_is_what_to_try_next(tmp_path: Path) -> None:
    def short_tail(host: Host) -> None:
        host.forward(2000)
        ddp(host, [MIB] * 12, [(10 * MIB, 9), (2 * MIB, 11)], node_us=6000)
        host.update(1000)

    made = audit(case(tmp_path, short_tail).recordings)
    assert [finding.severity for finding in made.findings] == ["low"]
    assert made.verdict.next_step == (
        "measure the predicted bucket size beside the present one: stepscope sweep --bucket-cap-mb script,1 SCRIPT"
    )


def test_no_bucket_is_too_large_where_a_larger_one_would_help(tmp_path: Path) -> None:
    """Latency is all that the transfers cost: one bucket for everything is the best."""

    def small_and_late(host: Host) -> None:
        host.forward(2000)
        ddp(host, [MIB] * 12, [(MIB, 10), (11 * MIB, 11)], node_us=500)
        host.update(1000)

    recorded = case_of(
        tmp_path, lay_out(small_and_late, steps=3, latency=9000, per_element=US_AN_ELEMENT / 10)
    )
    advised = recommend(recorded)
    assert advised is not None and advised.bucket_cap_mb * 2**20 >= 12 * 2**20
    assert bucket_too_large.detect(recorded) == []


def test_no_cap_gains_more_than_a_step_without_transfers_would(tmp_path: Path) -> None:
    """Of one bucket's 12 ms behind backward a model that has the present step 20 ms longer than it was promises 12 at most."""
    cutting = Rebucketing(case(tmp_path, one_bucket))
    recorded = cutting.recorded()
    modelled = {number: step + 20e6 for number, step in recorded.items()}
    most = cutting.most(modelled, modelled)
    assert list(most.values()) == pytest.approx([12e6] * 3, abs=10e3)
    assert (
        Outcome([1], {number: step - 1e6 for number, step in recorded.items()}, None).gains(modelled, most)
        == most
    )


def test_one_step_does_not_tell_a_gain_from_noise(tmp_path: Path) -> None:
    alone = case(tmp_path, one_bucket, steps=1)
    assert recommend(alone) is None
    made = asked(alone, 1, 2)
    assert made.recommended_mb is None
    assert made.why == "one recorded step does not tell a gain from noise; record more of them"


def test_more_ranks_pay_a_rings_latency_and_bytes(tmp_path: Path) -> None:
    """Four ranks instead of two: 1.5 times the bytes on each link; 12 ms become 18, and the global batch doubles."""
    made = asked(case(tmp_path, one_bucket), 100, world_size=4)
    for cap in made.caps:
        assert cap.gain_ms == pytest.approx(made.present.step_ms - cap.step_ms)
    assert made.present.step_ms - made.recorded.step_ms == pytest.approx(6, abs=0.01)
    assert made.caps[0].step_ms - made.recorded.step_ms == pytest.approx(6, abs=0.02)
    assert made.global_batch_growth == 2
    assert any("flat ring" in line for line in made.assumptions)


def test_a_measured_noise_scale_tells_what_more_ranks_are_worth(tmp_path: Path) -> None:
    """6 batches of a rank, 2 ranks now, 4 then: 1 + 6/4 over 1 + 6/2 of the steps, each of twice the samples."""
    made = replace(
        case(tmp_path, one_bucket),
        run={"noise_scale": {"steps": 30, "rank_batches": 6.0, "rank_batches_low": 4.0}},
    )
    told = asked(made, 100, world_size=4, batch=8).noise_scale
    assert told is not None
    assert (told.rank_batches, told.rank_batches_low, told.rank_batches_high) == (6, 4, None)
    assert (told.steps_factor, told.samples_factor, told.samples) == (2.5 / 4, 1.25, 48)
    assert asked(case(tmp_path, one_bucket), 100, world_size=4).noise_scale is None


def test_another_link_takes_the_place_of_the_recorded_one(tmp_path: Path) -> None:
    """12 MiB at 12.582912 GB/s are 1 ms, and two hops of 500 us another."""
    link = Wanted(gb_per_s=12.582912, latency_us=500)
    made = asked(case(tmp_path, one_bucket), 100, link=link)
    assert made.present.step_ms - made.recorded.step_ms == pytest.approx(2 - 12, abs=0.01)
    assert made.link.source == "--bw and --latency"


def test_a_calibration_that_will_not_do_is_told_with_the_link_unless_options_replace_it(
    tmp_path: Path,
) -> None:
    wide = calibration(own=fit(bandwidth_gb_per_s_interval=(0.02, 0.3)))
    fabric = str(write_calibration(tmp_path, wide))
    recorded = case(tmp_path, one_bucket)
    warning = asked(recorded, 100, link=Wanted(fabric=fabric)).link.warning
    assert warning is not None
    assert warning.startswith(f"{fabric} is not usable: the times leave B anywhere from 0.02 to 0.3 GB/s.")
    given = Wanted(fabric=fabric, gb_per_s=1, latency_us=5)
    assert asked(recorded, 100, link=given).link.warning is None


def test_the_links_own_latency_and_bandwidth_are_the_same_for_any_number_of_ranks(tmp_path: Path) -> None:
    """Of a ring of four an all-reduce takes 6 hops instead of 2, and 1.5 times the bytes on each link."""
    recorded = case(tmp_path, one_bucket)
    two, four = (asked(recorded, 100, link=Wanted(latency_us=500), world_size=ranks).link for ranks in (2, 4))
    assert (two.alpha_us, four.alpha_us) == pytest.approx((500, 500))
    assert four.bus_gb_per_s == pytest.approx(two.bus_gb_per_s)
    assert (two.latency_us, four.latency_us) == pytest.approx((1000, 3000))
    assert two.gb_per_s / four.gb_per_s == pytest.approx(1.5)


def test_buckets_of_one_size_tell_no_latency_and_the_answer_says_so(tmp_path: Path) -> None:
    made = asked(case(tmp_path, two_buckets, latency=500), 1)
    assert made.link.latency_us == 0
    assert made.link.remarks[1:] == [
        "the transfers do not tell latency from bandwidth: no latency is assumed"
    ]


def test_a_micro_batch_more_takes_a_forward_and_a_backward(tmp_path: Path) -> None:
    made = asked(case(tmp_path, one_bucket), 100, accumulate=3)
    assert made.present.step_ms - made.recorded.step_ms == pytest.approx(2 * 26.24, abs=0.01)
    assert made.global_batch_growth == 3


@pytest.mark.parametrize(
    ("stage", "change"),
    [
        pytest.param(0, 0.0, id="plain"),
        pytest.param(1, 6.0 - 0.5, id="gather after a step that is halved"),
        pytest.param(2, 6.0 - 0.5 - 6.0, id="and half the reduction"),
        pytest.param(3, 6.0 - 2.0 - 0.5, id="gather beyond forward"),
    ],
)
def test_a_zero_stage_moves_what_the_stage_moves(tmp_path: Path, stage: int, change: float) -> None:
    """12 MiB on two ranks: an all-reduce of 12 ms, a gather of 6; 2 ms of forward, 1 ms of optimizer."""
    made = asked(case(tmp_path, one_bucket), 100, zero=stage)
    assert made.present.step_ms - made.recorded.step_ms == pytest.approx(change, abs=0.01)


def test_compute_is_slower_where_the_transfers_now_are(tmp_path: Path) -> None:
    """Nodes of 1 ms that took 1.5 beside a transfer, copies that took no longer: of one bucket at the end none is beside it."""

    def slowed(host: Host) -> None:
        host.forward(2000)
        numbers = []
        for place in range(12):
            host.node(1000 if place < 6 else 1500)
            host.gradient(
                MIB,
                hook=(lambda: numbers.append(host.launch("all_reduce", 6 * MIB)))
                if place in (5, 11)
                else None,
            )
        for number in numbers:
            host.wait(number)
            host.copy_out(6 * MIB)
        host.update(1000)

    traces = lay_out(slowed, steps=3, per_element=10_000 / (6 * MIB))
    made = case_of(tmp_path, traces)
    assert slowdown(zip(made.recordings, made.timelines, strict=True)) == pytest.approx(1.49, abs=0.001)
    apart = CapPredictor(made).predict([100])[0]
    first = 2 + 6 * 1.02
    backward = first + 6 * 1.52 / 1.49
    assert apart.gain_ms == pytest.approx(first + 10 + 10 - (backward + 20), abs=0.02)


def test_a_recording_that_is_replayed_as_it_was_is_as_long_as_it_was(tmp_path: Path) -> None:
    made = case(tmp_path, two_buckets)
    for graph in made.graphs.values():
        ends = {one.index: one.step.backward_end for one in made.rank_steps() if one.number == graph.step}
        for factor in (1.0, 1.7):
            assert Contended(graph, factor, ends).pace() == pytest.approx(graph.pace(), abs=10)


def test_caps_that_are_none_and_runs_without_ddp_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"a bucket cap of 0 MiB is impossible; give sizes above 0"):
        bucket_caps(tmp_path, [1, 0])
    with pytest.raises(InputError, match="one rank reduces nothing"):
        asked(case(tmp_path, one_bucket), 1, world_size=1)

    def without_ddp(host: Host) -> None:
        host.forward(2000)
        host.node(2000)
        host.update(1000)

    with pytest.raises(InputError, match="predict needs a run of DDP on two ranks or more"):
        asked(case(tmp_path, without_ddp), 1)
