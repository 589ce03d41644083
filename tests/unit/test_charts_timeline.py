"""The static timeline draws what the audit says, on the step's own clock."""

from __future__ import annotations

from typing import Any

import msgspec

import sample_audits
from stepscope.audit.result import Audit
from stepscope_reports.charts import style, timeline


def bars(audit: Audit, **options: Any) -> list[tuple[str, str, float, float]]:
    """Lane, what it shows, start and end of each bar."""
    picture = timeline(audit, **options)
    assert picture is not None
    (rows,) = picture.to_dict()["datasets"].values()
    return [(row["lane"], row["what"], row["start"], row["end"]) for row in rows]


def test_a_later_step_is_drawn_from_its_own_start_and_cut_where_it_is_exposed() -> None:
    assert bars(sample_audits.comm_bound()) == [
        ("forward", "forward", 0.0, 100.0),
        ("backward", "backward", 100.0, 300.0),
        ("optimizer", "optimizer", 360.0, 400.0),
        ("bucket 0 25.0 MiB", "hidden behind compute", 180.0, 280.0),
        ("bucket 1 20.0 MiB", "hidden behind compute", 280.0, 360.0),
        ("bucket 1 20.0 MiB", "exposed", 300.0, 360.0),
        ("other", "hidden behind compute", 0.0, 10.0),
    ]


def test_compute_after_backward_that_is_no_optimizers_is_not_drawn_as_forward() -> None:
    audit = sample_audits.comm_bound()
    rank, step = audit.ranks[0], audit.ranks[0].steps[1]
    assert step.timeline is not None
    begin = step.start_ms
    lane = [(begin, begin + 100.0), (begin + 320.0, begin + 360.0)]
    clipped = msgspec.structs.replace(step, timeline=msgspec.structs.replace(step.timeline, forward=lane))
    assert bars(audit, shown=[(rank, clipped)])[:4] == [
        ("forward", "forward", 0.0, 100.0),
        ("backward", "backward", 100.0, 300.0),
        ("other compute", "other compute", 320.0, 360.0),
        ("optimizer", "optimizer", 360.0, 400.0),
    ]


def test_waiting_that_is_exposed_is_told_from_transfer() -> None:
    audit = sample_audits.comm_bound()
    waited = [msgspec.structs.replace(one, wait_ms=50.0) for one in audit.collectives]
    shown = bars(msgspec.structs.replace(audit, collectives=waited))
    assert [bar for bar in shown if bar[1] == "waiting for a rank"] == [
        ("bucket 1 20.0 MiB", "waiting for a rank", 300.0, 330.0)
    ]


def test_several_ranks_are_told_apart() -> None:
    audit = sample_audits.comm_bound()
    lanes = {lane for lane, *_ in bars(audit, shown=[(rank, rank.steps[1]) for rank in audit.ranks])}
    assert {"rank 0: backward", "rank 1: backward"} <= lanes


def test_a_bucket_past_the_hundredth_keeps_a_space_before_its_size() -> None:
    audit = sample_audits.comm_bound()
    (gradient,) = [one for one in sample_audits.collectives(0, 5, start=400.0) if one.start_ms == 580.0]
    many = msgspec.structs.replace(audit, collectives=[gradient] * 120)
    lanes = {lane for lane, *_ in bars(many)}
    assert "bkt. 119 25.0 MiB" in lanes


def test_it_renders_without_a_browser() -> None:
    picture = timeline(sample_audits.comm_bound())
    assert picture is not None
    assert style.svg(picture).startswith("<svg")
    assert style.png(picture).startswith(b"\x89PNG")


def test_there_is_no_picture_without_a_step() -> None:
    assert timeline(sample_audits.comm_bound(), shown=[]) is None
