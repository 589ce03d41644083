"""What a sweep says of its runs: rows, the best one, what to do, and the report in 80 columns."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from typing import Any

import jsonschema
import msgspec
import pytest

from stepscope.schema.generate import SCHEMA_FILE
from stepscope.sweep.build import Made, Predicted, build
from stepscope.sweep.plan import Plan
from stepscope.sweep.result import Sweep
from stepscope.sweep.results import FAILED, MEASURED, NO_DDP, Figures, RunResult
from stepscope_reports.sweep import render

MIB = 2**20
WHOLE = 41 * MIB


def plan(**knobs: list[str]) -> Plan:
    return Plan(
        script="train.py",
        arguments=[],
        launcher=["--nproc-per-node=2"],
        knobs={name.replace("_", "-"): values for name, values in knobs.items()},
        flags={},
        warmup=8,
        steps=3,
        seed=0,
        halving=False,
    )


def figures(buckets: int, cap_mib: float | None, **changes: Any) -> Figures:
    """An all-reduce of `n` buckets on a link with alpha 1 ms and B 0.1 GB/s between two ranks."""
    size = WHOLE // buckets
    return msgspec.structs.replace(
        Figures(
            world_size=2,
            backend="gloo",
            recorded_ms=420.0,
            backward_ms=200.0,
            comm_ms=buckets * (2 + size / 1e8 * 1e3),
            exposed_ms=50.0,
            floor_ms=20.0,
            overlap_backward=0.75,
            all_reduced=True,
            bucket_bytes=[size] * buckets if cap_mib is not None else [],
            bucket_cap_bytes=None if cap_mib is None else int(cap_mib * MIB),
            replaced_caps_mb=[],
        ),
        **changes,
    )


def run(
    knobs: dict[str, str],
    number: int,
    ms: float,
    of: Figures | None = None,
    *,
    status: str = MEASURED,
    message: str = "",
) -> RunResult:
    return RunResult(
        knobs=knobs,
        round=number,
        status=status,
        message=message,
        folder=f"runs/{'-'.join(knobs.values())}-round{number + 1}",
        started="2026-11-30T08:00:00+00:00",
        seconds=12.0,
        step_ms=[ms] if status != FAILED else [],
        figures=of,
    )


def caps(*rounds: tuple[float, ...], names: tuple[str, ...] = ("5", "25", "100")) -> Made:
    """Runs of some caps, a tuple of times for each round."""
    made = [
        run({"bucket-cap-mb": cap}, number, ms, figures(max(1, round(41 / mib)), mib))
        for number, times in enumerate(rounds)
        for cap, ms in zip(names, times, strict=True)
        for mib in [25.0 if cap == "script" else float(cap)]
    ]
    return Made(
        plan=plan(bucket_cap_mb=list(names)),
        repeat=len(rounds),
        results=made,
        command=["stepscope", "sweep"],
        folder="runs/sweep",
    )


def shown(sweep: Sweep) -> str:
    stream = io.StringIO()
    render(sweep, stream)
    text = stream.getvalue()
    assert max(map(len, text.splitlines())) <= 80
    return text


def test_the_winner_is_named_beside_ddps_default_with_what_to_set() -> None:
    sweep = build(caps((100.0, 120.0, 130.0), (102.0, 122.0, 133.0), (101.0, 121.5, 131.0)))
    assert sweep.best is not None
    assert (sweep.best.row, sweep.best.bucket_cap_mb, sweep.best.certain) == (0, 5.0, True)
    assert sweep.explanation.startswith(
        "5 MiB is the fastest: 101.0 ms a step. 25 MiB takes 20.0 % longer, 95 % interval "
    )
    assert sweep.next_step == "Set bucket_cap_mb=5 in DDP."
    assert [row.buckets for row in sweep.rows] == [8, 2, 1]
    assert [row.run_step_ms for row in sweep.rows] == [[100, 102, 101], [120, 122, 121.5], [130, 133, 131]]
    text = shown(sweep)
    assert "  5 MiB         3   +0.0 %                   -  shortest" in text
    assert text.rstrip().endswith("Next: Set bucket_cap_mb=5 in DDP.")


def test_sizes_that_cant_be_told_apart_are_listed_with_the_rounds_that_would() -> None:
    sweep = build(caps((100.0, 103.0, 150.0), (102.0, 101.5, 155.0), (101.0, 103.5, 149.0)))
    assert sweep.best is not None
    assert (sweep.best.row, sweep.best.tied_with, sweep.best.certain) == (0, [1], False)
    rounds = sweep.rows[1].rounds_to_tell
    assert rounds is not None and rounds > 3
    assert sweep.explanation.startswith(
        "5 MiB and 25 MiB are not told apart by these runs: 101.0 to 102.7 ms a step. Beside 5 MiB, 25 MiB takes 1.6 % longer, "
        "95 % interval -2.9 to 6.4 %. 100 MiB takes 49.8 % longer"
    )
    assert sweep.next_step.startswith(
        "Keep bucket_cap_mb=25 in DDP: no other is worth a change by these runs."
    )
    assert sweep.next_step.endswith(
        f"takes about {rounds} rounds (3 so far): the same command with --repeat {rounds} and --out runs/sweep goes on from here."
    )


@pytest.mark.parametrize(
    ("names", "kept", "to_keep"),
    [
        (("5", "25", "100"), "25 MiB", "bucket_cap_mb=25 in DDP"),
        (("script", "25", "100"), "the script's own cap", "the script's own bucket cap"),
        (("1", "5", "100"), "5 MiB", "bucket_cap_mb=5 in DDP"),
    ],
)
def test_where_no_cap_is_told_from_another_the_one_that_is_there_is_kept(
    names: tuple[str, ...], kept: str, to_keep: str
) -> None:
    rounds = ((100.5, 100.0, 101.0), (101.0, 100.0, 100.0), (100.5, 101.0, 101.0))
    made = build(caps(*rounds, names=names))
    assert made.explanation.startswith(
        f"No cap is told from {kept} by these runs: 100.3 to 100.7 ms a step. Beside "
    )
    assert made.next_step.startswith(f"Keep {to_keep}: no other is worth a change by these runs.")


def test_one_round_is_no_proof_and_says_how_to_get_one() -> None:
    sweep = build(caps((100.0, 120.0, 130.0)))
    assert sweep.best is not None and not sweep.best.certain
    assert "one run each can't tell a difference from noise" in sweep.explanation
    assert (
        sweep.next_step
        == "The same command with --repeat 3 and --out runs/sweep goes on from here and tells."
    )


def test_the_model_is_fitted_to_the_sweeps_own_communication() -> None:
    sweep = build(caps((100.0, 120.0, 130.0, 140.0), names=("1", "5", "25", "100")))
    assert sweep.model is not None
    assert sweep.model.alpha_us == pytest.approx(1000, rel=0.01)
    assert sweep.model.bandwidth_gb_per_s == pytest.approx(0.1, rel=0.01)
    first, *_, last = sweep.rows
    assert first.model_ms == pytest.approx(41 * (2 + MIB / 1e5), rel=0.01)
    assert first.latency_share == pytest.approx(2 / (2 + MIB / 1e5), rel=0.02)
    assert (first.bandwidth_bound, last.bandwidth_bound) == (True, True)
    assert last.model_ms == pytest.approx(2 + WHOLE / 1e5, rel=0.01)


def test_what_was_not_measured_says_why_and_the_rest_is_kept() -> None:
    made = caps((100.0, 120.0), (101.0, 121.0), names=("5", "25"))
    message = "rank 1 was killed by SIGKILL; no step was recorded"
    failed = run({"bucket-cap-mb": "100"}, 0, 0.0, status=FAILED, message=message)
    sweep = build(replace(made, plan=plan(bucket_cap_mb=["5", "25", "100"]), results=[*made.results, failed]))
    assert [row.status for row in sweep.rows] == [MEASURED, MEASURED, FAILED]
    assert sweep.best is not None and sweep.best.row == 0
    assert f"  100 MiB: {message}" in shown(sweep)


def test_a_script_without_ddp_is_told_once_for_all_caps() -> None:
    alone = run(
        {"bucket-cap-mb": "5"},
        0,
        50.0,
        figures(1, None),
        status=NO_DDP,
        message="the script made no DDP module",
    )
    sweep = build(replace(caps((100.0, 120.0), names=("5", "25")), results=[alone]))
    assert [row.status for row in sweep.rows] == [NO_DDP, NO_DDP]
    assert sweep.best is None
    assert sweep.explanation == "Nothing could be compared: 5 MiB: the script made no DDP module"
    assert sweep.next_step.startswith("Wrap the model in DistributedDataParallel")


def test_accumulated_steps_compare_by_micro_batch() -> None:
    knobs = [{"accumulate": "1"}, {"accumulate": "4"}]
    results = [
        run(knobs[candidate], number, ms)
        for number in range(2)
        for candidate, ms in enumerate((100.0, 320.0))
    ]
    sweep = build(
        Made(plan=plan(accumulate=["1", "4"]), repeat=2, results=results, command=[], folder="runs/sweep")
    )
    assert sweep.best is not None and sweep.best.row == 1
    assert [row.step_ms for row in sweep.rows] == pytest.approx([100.0, 320.0])
    assert [row.micro_batch_ms for row in sweep.rows] == pytest.approx([100.0, 80.0])
    assert sweep.rows[0].over_best == pytest.approx(1.25)
    assert "ms a micro-batch" in shown(sweep)


def test_predictions_stand_beside_what_was_measured() -> None:
    made = caps((100.0, 120.0), (100.0, 120.0), names=("5", "25"))
    sweep = build(replace(made, predictions={0: Predicted("runs/25-round1", 104.0, "the calibration")}))
    assert (sweep.rows[0].predicted_step_ms, sweep.rows[0].predicted_from) == (104.0, "runs/25-round1")
    assert "+4.0 %" in shown(sweep)
    assert "runs/25-round1 replayed as" in shown(sweep)
    assert sweep.rows[0].predicted_link == "the calibration"


def test_caps_of_the_script_and_long_names_are_said() -> None:
    own = figures(8, 8.0)
    other = figures(1, 25.0, replaced_caps_mb=[8.0])
    results = [
        run({"bucket-cap-mb": cap}, number, ms, of)
        for number in range(2)
        for cap, ms, of in (("script", 100.0, own), ("25", 90.0, other))
    ]
    made = Made(
        plan=plan(bucket_cap_mb=["script", "25"]), repeat=2, results=results, command=[], folder="runs/sweep"
    )
    text = shown(build(made))
    assert "  own: 8 MiB " in text
    assert "asks for a bucket cap of 8 MiB; the sweep set its own" in text
    several = replace(
        made,
        plan=plan(bucket_cap_mb=["script", "25"], NCCL_MAX_CTAS=["4", "8"]),
        results=[
            run({"bucket-cap-mb": cap, "NCCL-MAX-CTAS": ctas}, 0, 100.0, own)
            for cap in ("script", "25")
            for ctas in ("4", "8")
        ],
    )
    assert "   #4  25 MiB, NCCL-MAX-CTAS=8" in shown(build(several))


def test_the_json_obeys_its_schema() -> None:
    schema = json.loads(SCHEMA_FILE.with_name("sweep-1.json").read_text("utf-8"))
    made = build(caps((100.0, 120.0, 130.0), (102.0, 122.0, 133.0)))
    plain = json.loads(msgspec.json.encode(made))
    jsonschema.Draft202012Validator(schema).validate(plain)
    contract = {
        "bucket_cap_mb",
        "buckets",
        "step_ms",
        "step_ms_ci",
        "exposed_ms",
        "floor_ms",
        "overlap_backward",
        "model_ms",
    }
    assert contract <= set(plain["rows"][0])
    assert plain["schema"] == "stepscope.sweep/1"
