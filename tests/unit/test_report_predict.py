"""A prediction's table: one row for the caps that give the same buckets, and a word where a cap looks like the recorded one."""

from __future__ import annotations

import io

import pytest

from stepscope.predict.result import Link, Predicted, Prediction, Recorded, WhatIf
from stepscope_reports import predict as report

MIB = 1 << 20


def prediction(cap: float, *buckets: int) -> Prediction:
    return Prediction(
        bucket_cap_mb=cap,
        bucket_bytes=[size * MIB for size in buckets],
        step_ms=100.0 + sum(buckets),
        exposed_ms=5.0,
        gain_ms=0.0,
    )


def rows(caps: list[Prediction], first: float | None = None) -> list[str]:
    """The lines of the table from `now` to the best schedule and what stands below it."""
    now = [8 * MIB, 8 * MIB]
    made = Predicted(
        schema="stepscope.predict/1",
        stepscope="0",
        recorded=Recorded(
            run="runs/demo",
            world_size=2,
            backend="gloo",
            device="cpu",
            steps=[5],
            accumulate=1,
            bucket_cap_mb=25.0,
            first_bucket_cap_mb=first,
            bucket_bytes=now,
            step_ms=100.0,
            recorded_step_ms=100.0,
            exposed_ms=5.0,
        ),
        what_if=WhatIf(),
        link=Link(latency_us=0, gb_per_s=1.0, source="the run's own gradient transfers"),
        present=prediction(25, 8, 8),
        caps=caps,
        best_schedule=prediction(0, 1),
        why="no bucket cap is predicted to make the step shorter by 1 % or more",
        global_batch_growth=1.0,
        assumptions=[],
    )
    stream = io.StringIO()
    report.render(made, stream)
    lines = stream.getvalue().splitlines()
    assert max(map(len, lines)) <= 80
    table = stream.getvalue().partition("Predicted (ms)\n")[2].partition("\n\n")[0]
    return table.splitlines()[1:]


@pytest.mark.parametrize(
    ("caps", "named"),
    [
        ([0.5], "0.5"),
        ([0.5, 1.0], "0.5, 1"),
        ([0.5, 1.0, 2.0], "0.5, 1, 2"),
        ([0.1, 0.5, 1.0, 2.0], "0.1 to 2"),
    ],
)
def test_caps_that_give_the_same_buckets_are_one_row(caps: list[float], named: str) -> None:
    made = rows([*(prediction(cap, 2, 2, 2) for cap in caps), prediction(50, 16)])
    assert [line.strip().partition("  ")[0] for line in made] == ["now", named, "50", "best schedule"]


def test_the_recorded_number_for_all_buckets_is_told_from_ddps_default() -> None:
    made = rows([prediction(5, 4, 4), prediction(25, 16)], first=1.0)
    assert made[2].startswith("  25*  ")
    assert " ".join(line.strip() for line in made[4:]) == (
        "* bucket_cap_mb=25 written in the script: it holds for all buckets. Now is DDP's default, 1 MiB for the first "
        "bucket and 25 for the others"
    )


def test_a_recorded_cap_that_holds_for_all_buckets_needs_no_footnote() -> None:
    assert "*" not in "".join(rows([prediction(5, 4, 4), prediction(25, 16)]))
