"""The terms of a measured fabric, what ran beside a transfer, and what is said where model and measurement part."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from measured_runs import calibration, fit
from stepscope.budget.beside import compare, exposed_in_order
from stepscope.budget.calibrated import Model, Terms, given_model, measured_model
from stepscope.budget.links import Link
from stepscope.budget.quantities import ZERO_TIME, Rate, Size, Time
from stepscope.budget.recorded import Operation, Recorded, beside_transfers
from stepscope.budget.result import StepComparison
from stepscope.errors import InputError

MB = Size.from_bytes(1e6)
LINK = Link(Time.from_us(50), Rate.from_gb_per_s(0.1))


def operation(start: float, duration: float, **changes: Any) -> Operation:
    """An all-reduce of 1 MB on two ranks, in ms, all of it transfer."""
    fields: dict[str, Any] = {
        "source": "rank0",
        "step": 1,
        "kind": "all_reduce",
        "gradient": True,
        "size": MB,
        "ranks": 2,
        "start": Time.from_ms(start),
        "duration": Time.from_ms(duration),
        "wire": Time.from_ms(duration),
        "beside_backward": ZERO_TIME,
    }
    return Operation(**{**fields, **changes})


def recorded(*operations: Operation, **changes: Any) -> Recorded:
    """One step of 100 ms of compute, 60 of them backward."""
    fields: dict[str, Any] = {
        "run": "run",
        "hosts": ("node0",),
        "backend": "gloo",
        "on_cpu": True,
        "emulated": False,
        "world_size": 2,
        "label": "comm-bound",
        "reason": "link",
        "steps": 1,
        "compute": Time.from_ms(100),
        "window": Time.from_ms(60),
        "parameters": None,
        "zero": 0,
        "operations": operations,
        "step": StepComparison(
            waiting_included=False,
            communication=Time.from_ms(20),
            hidden=Time.from_ms(5),
            exposed=Time.from_ms(15),
            floor=None,
        ),
        "waiting": None,
    }
    return Recorded(**{**fields, **changes})


def remarks(*operations: Operation, model: Model | None = None, **changes: Any) -> list[str]:
    made = compare(recorded(*operations, **changes), model or given_model(LINK))
    return [text for row in made.sizes for text in row.remarks]


def test_each_collective_has_its_own_terms_and_the_others_the_all_reduces() -> None:
    model = measured_model(calibration(reduce_scatter=fit(alpha_us=10.0, bandwidth_gb_per_s=0.2)), 2)
    assert model.terms("all_reduce").time("all_reduce", 2, MB).ms == pytest.approx(0.1 + 10.0)
    assert model.terms("reduce_scatter").time("reduce_scatter", 2, MB).ms == pytest.approx(0.01 + 2.5)
    assert model.terms("all_gather").time("all_gather", 2, MB).ms == pytest.approx(0.05 + 5.0)


def test_the_calibrations_own_prediction_is_the_models() -> None:
    made = calibration(ranks=4)
    measured = made.collective("all_reduce")
    assert measured is not None
    terms = measured_model(made, 4).terms("all_reduce")
    for count in (64, 1e5, 1e8):
        size = Size.from_bytes(count)
        assert terms.time("all_reduce", 4, size).ms == pytest.approx(measured.predicted(size).ms)


def test_the_floor_serves_the_ranks_it_was_measured_on_alone() -> None:
    tiny = Size.from_bytes(64)
    made = calibration()
    assert measured_model(made, 2).base.time("all_reduce", 2, tiny).us == pytest.approx(400.0)
    assert measured_model(made, 4).base.time("all_reduce", 4, tiny).us == pytest.approx(300.0, rel=0.01)
    given = measured_model(made, 2, latency=Time.from_us(70))
    assert given.base.time("all_reduce", 2, tiny).us == pytest.approx(140.0, rel=0.01)


def test_a_calibration_that_found_no_fit_gives_no_model() -> None:
    with pytest.raises(InputError, match="found no latency and bandwidth that fit its times"):
        measured_model(msgspec.structs.replace(calibration(), source=None), 2)


def test_transfers_beside_each_other_are_counted_once_and_waiting_is_none() -> None:
    shares = beside_transfers(
        [
            operation(0, 100),
            operation(50, 100),
            operation(60, 10),
            operation(0, 100, source="rank1"),
            operation(140, 60, wire=Time.from_ms(20)),
        ]
    )
    assert shares == pytest.approx([0.5, 0.5, 1.0, 0.0, 0.0])


def test_a_transfer_that_the_model_meets_needs_no_words() -> None:
    assert remarks(operation(0, 10.5), operation(5, 10.5)) == []


def test_two_lanes_that_share_the_link_are_named() -> None:
    assert remarks(operation(0, 20), operation(10, 20)) == [
        "another transfer ran beside it for 50.0 % of its time: gloo has two lanes, and they share the link"
    ]


def test_backward_beside_a_slow_transfer_contends_for_the_cores_or_the_device() -> None:
    slow = operation(0, 20, beside_backward=Time.from_ms(15))
    assert remarks(slow) == ["75.0 % of it ran beside backward compute, which contends for the same cores"]
    assert remarks(slow, on_cpu=False) == [
        "75.0 % of it ran beside backward compute, which contends for the same device"
    ]


def test_a_difference_without_a_reason_in_the_recording_gets_none() -> None:
    assert remarks(operation(0, 20)) == ["slower than the model, and the recording does not tell why"]
    assert remarks(operation(0, 5, beside_backward=Time.from_ms(5))) == [
        "faster than the model, and the recording does not tell why"
    ]


def test_below_the_valid_range_is_said_first() -> None:
    valid = (Size.from_mib(2), Size.from_mib(64))
    terms = Terms(alpha=LINK.latency, rate=LINK.rate, valid=valid)
    model = Model(name="the calibration", base=terms, own={})
    assert remarks(operation(0, 5), model=model) == [
        "below the range in which the fit holds (2.0 MiB to 64.0 MiB)"
    ]
    assert compare(recorded(operation(0, 5)), model).sizes[0].in_valid_range is False


def test_equal_buckets_are_one_row_with_their_number_a_step() -> None:
    steps = [operation(start, 10.0 + start / 10, step=step) for step in (1, 2) for start in (0, 20, 40)]
    (row,) = compare(recorded(*steps), given_model(LINK)).sizes
    assert (row.count, row.samples) == (3, 6)
    assert row.measured.ms == pytest.approx(12.0)


def test_a_size_that_most_steps_do_not_have_is_left_out_with_a_word() -> None:
    odd = operation(0, 5, step=3, size=Size.from_bytes(5))
    made = compare(recorded(operation(0, 10), operation(0, 10, step=2), odd), None)
    assert [row.size for row in made.sizes] == [MB]
    assert "Left out: 1 collective of sizes that most steps do not have." in made.remarks


def test_a_collective_that_no_ring_carries_has_no_time_in_the_model() -> None:
    made = compare(recorded(operation(0, 10, kind="reduce")), given_model(LINK))
    assert (made.sizes[0].model, made.step.model_communication) == (None, None)
    assert "The model has no time for reduce." in made.remarks


def test_the_exposed_part_of_unequal_buckets_in_order() -> None:
    """Ready at 20 and 60 of 60 ms: 50 ms after 20, then 30 more after the one before."""
    sizes = [Size.from_mib(10), Size.from_mib(20)]
    times = [Time.from_ms(50), Time.from_ms(30)]
    assert exposed_in_order(sizes, times, Time.from_ms(60)).ms == pytest.approx(40.0)
