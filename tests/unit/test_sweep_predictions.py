"""What a sweep predicts beside what it measured: from one run's steps, with what the other candidates say of the link."""

from __future__ import annotations

from pathlib import Path

import pytest

from gloo_job import COPY_US, Host, ddp, lay_out
from stepscope.cli.sweep_predictions import FITTED, predictions
from stepscope.sweep.results import MEASURED, Figures, RunResult

MIB = 262_144
"""Elements of float32."""
WHOLE = 12
"""MiB of gradients."""


def measured(cap: int, comm_ms: float) -> RunResult:
    buckets = max(1, WHOLE // cap)
    return RunResult(
        knobs={"bucket-cap-mb": str(cap)},
        round=0,
        status=MEASURED,
        folder=f"{cap}-round1",
        started="2026-11-30T08:00:00+00:00",
        seconds=12.0,
        step_ms=[40.0],
        figures=Figures(
            world_size=2,
            backend="gloo",
            recorded_ms=None,
            backward_ms=None,
            comm_ms=comm_ms,
            exposed_ms=None,
            floor_ms=None,
            overlap_backward=None,
            all_reduced=True,
            bucket_bytes=[(WHOLE << 20) // buckets] * buckets,
            bucket_cap_bytes=cap << 20,
            replaced_caps_mb=[],
        ),
    )


def one_bucket(host: Host) -> None:
    """12 gradients of a MiB, 2 ms apart, in one bucket that takes 12 ms after backward."""
    host.forward(2000)
    ddp(host, [MIB] * WHOLE, [(WHOLE * MIB, WHOLE - 1)], node_us=2000)
    host.update(1000)


def test_a_prediction_takes_the_link_from_the_other_candidates_and_nothing_from_its_own(
    tmp_path: Path,
) -> None:
    """They say 0.5 ms and 1 ms a MiB; the recorded bucket took 12 ms of their 12.5, so all is as much quicker."""
    (tmp_path / "25-round1").mkdir()
    for rank, trace in enumerate(lay_out(one_bucket, steps=2, per_element=1000 / MIB)):
        trace.write(tmp_path / "25-round1" / f"rank{rank}.pt.trace.json")
    results = [measured(cap, max(1, WHOLE // cap) * 0.5 + WHOLE) for cap in (2, 3, 4, 6, 25)] + [
        measured(1, comm_ms=500.0)
    ]
    made = predictions(tmp_path, [one.knobs for one in results], results)
    tail = 1.5 * 12 / 12.5
    assert made[5].step_ms == pytest.approx(26.24 + tail + (COPY_US + 1000) / 1e3, abs=0.05)
    assert (made[5].folder, made[5].link) == ("25-round1", FITTED)


def test_two_candidates_say_too_little_of_the_link_and_the_run_speaks_for_itself(tmp_path: Path) -> None:
    (tmp_path / "25-round1").mkdir()
    for rank, trace in enumerate(lay_out(one_bucket, steps=2, per_element=1000 / MIB)):
        trace.write(tmp_path / "25-round1" / f"rank{rank}.pt.trace.json")
    results = [measured(25, 12.5), measured(1, 500.0)]
    made = predictions(tmp_path, [one.knobs for one in results], results)
    assert made[1].link == "the run's own transfers"
    assert made[1].step_ms == pytest.approx(26.24 + 1 + (COPY_US + 1000) / 1e3, abs=0.05)
