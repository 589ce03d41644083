"""Two audits beside each other: exact figures, and what is told from noise."""

from __future__ import annotations

import io
import json

import jsonschema
import msgspec
import pytest
from msgspec.structs import replace

import sample_audits as samples
from compared_jobs import STEADY, hiding, job
from sample_audits import MIB
from stepscope.audit.result import Audit, Bucket
from stepscope.compare.between import compare
from stepscope.compare.result import Comparison, Difference
from stepscope.schema.generate import SCHEMAS
from stepscope_reports import compare as terminal
from stepscope_reports import compare_markdown as markdown

NAMES = ("before", "after")


def figure(made: Comparison, name: str) -> Difference:
    return next(one for one in (*made.figures, *made.waterfall) if one.figure == name)


def test_a_step_that_got_longer_is_worse_with_the_difference_of_medians_and_its_interval() -> None:
    made = compare(job(), job([wall + 20 for wall in STEADY]), NAMES)
    step = figure(made, "step_ms")
    assert (step.a, step.b, step.change, step.says) == (400.0, 420.0, 20.0, "worse")
    assert step.change_ci is not None
    low, high = step.change_ci
    assert 18.0 <= low < 20.0 < high <= 22.0
    assert made.summary[1].startswith("a step takes 5.0 % longer (95 % interval ")


def test_the_same_audit_twice_differs_in_nothing() -> None:
    made = compare(job(), job(), NAMES)
    assert {one.says for one in made.figures} == {"noise"}
    assert {one.change for one in made.figures} == {0.0}
    assert made.summary == [
        "both are comm-bound (serialised)",
        "a step takes 400.0 ms and 400.0 ms: no difference",
        "communication costs 15.0 % and 15.0 % of the step: no difference",
    ]
    assert made.warnings == []


def test_a_difference_within_the_noise_says_how_many_steps_would_tell() -> None:
    noisy = [380.0, 420.0, 390.0, 410.0, 400.0, 395.0, 405.0, 385.0]
    made = compare(job(noisy), job([wall + 2 for wall in noisy]), NAMES)
    step = figure(made, "step_ms")
    assert step.says == "noise"
    assert step.steps_needed is not None
    assert step.steps_needed > len(noisy)
    assert f"about {step.steps_needed:,} steps a side" in made.summary[1]


@pytest.mark.parametrize("steps", [1, 3])
def test_fewer_than_four_steps_tell_nothing_however_far_apart(steps: int) -> None:
    made = compare(job(STEADY[:steps]), job([900.0] * 8), NAMES)
    assert figure(made, "step_ms").says == "too few steps"
    assert "too few steps to tell; record 4 or more on both sides" in made.summary[1]


def test_the_overlap_of_b_is_better_where_more_is_hidden() -> None:
    overlap = figure(compare(hiding(90.0), hiding(135.0), NAMES), "overlap_backward")
    assert (overlap.a, overlap.b, overlap.says, overlap.unit) == (0.5, 0.75, "better", "share")


def test_more_time_hidden_is_no_gain_where_there_is_more_to_hide() -> None:
    made = compare(hiding(90.0), hiding(180.0, comm=360.0), NAMES)
    assert figure(made, "grad.hidden_backward_ms").says == "changed"
    assert figure(made, "overlap_backward").change == 0.0


def test_a_steps_change_says_how_much_of_it_is_compute() -> None:
    def computing(walls: float, compute: float) -> Audit:
        base = job([wall + walls for wall in STEADY])
        ranks = [
            replace(rank, steps=[replace(step, compute_ms=compute) for step in rank.steps])
            for rank in base.ranks
        ]
        return replace(base, ranks=ranks)

    said = [
        compare(computing(0, 300.0), computing(-20, 300.0 + more), NAMES).summary[1].partition("; ")[2]
        for more in (-15.0, -25.0, 5.0, 0.0)
    ]
    assert said == [
        "15.00 ms of the 20.00 ms are compute",
        "compute alone takes 25.00 ms less",
        "compute alone takes 5.00 ms longer",
        "",
    ]


def ran(cap: list[int], *words: str, variables: dict[str, str] | None = None, unused: bool = False) -> Audit:
    """A job with a run.json."""
    module = {"bucket_cap_bytes": cap[-1], "bucket_caps_bytes": cap, "find_unused_parameters": unused}
    run = {
        "script": "stepscope_workloads.train",
        "command": ["stepscope", "run", "--out", "x", "gpt", *words],
        "ddp": [module],
        "versions": {"torch": "2.13.0"},
        "environment": variables or {},
    }
    return replace(job(), run=run)


def test_the_settings_that_differ_are_named() -> None:
    before = ran([MIB, 25 * MIB], variables={"OMP_NUM_THREADS": "1"})
    after = ran([MIB], "--accumulate", "2", variables={"NCCL_ALGO": "Ring"}, unused=True)
    made = compare(before, after, NAMES)
    assert made.changed is not None
    assert [(one.name, one.a, one.b) for one in made.changed] == [
        ("bucket_cap_mb", "25 (the first bucket 1)", "1"),
        ("find_unused_parameters", "False", "True"),
        ("arguments", "none", "--accumulate 2"),
        ("OMP_NUM_THREADS", "1", "none"),
        ("NCCL_ALGO", "none", "Ring"),
    ]
    assert "Changed: bucket_cap_mb 25 (the first bucket 1) to 1, find_unused_parameters" in lines_of(made)


def test_runs_of_the_same_settings_are_told_from_runs_of_which_nothing_is_known() -> None:
    same = compare(ran([MIB]), ran([MIB]), NAMES)
    assert same.changed == []
    assert "Changed: nothing that run.json has (the script itself may be another)" in lines_of(same)
    unknown = compare(job(), ran([MIB]), NAMES)
    assert unknown.changed is None
    assert "Changed" not in lines_of(unknown)


def lines_of(made: Comparison) -> str:
    stream = io.StringIO()
    terminal.render(made, stream)
    return stream.getvalue()


def test_buckets_that_only_one_side_has_are_one_line() -> None:
    cut = [
        Bucket(
            bucket=place, bytes=MIB, steps=6, start_ms=10.0, duration_ms=5.0, hidden_share=1.0, exposed_ms=0.0
        )
        for place in range(20)
    ]
    made = compare(job(), replace(job(), buckets=cut), NAMES)
    text = lines_of(made)
    assert "only in A: 2 buckets of 20.0 MiB to 25.0 MiB; only in B: 20 buckets of 1.0 MiB" in text
    assert text.partition("Buckets (ms)")[2].count("MiB") == 3
    stream = io.StringIO()
    markdown.render(made, stream)
    assert "Buckets only in A: 2 buckets of 20.0 MiB to 25.0 MiB; only in B" in stream.getvalue()


def test_cost_share_is_the_verdicts_own_definition_step_by_step() -> None:
    cost = figure(compare(job(cost=40.0), job(cost=60.0), NAMES), "cost_share")
    assert (cost.a, cost.b, cost.says) == (0.1, 0.15, "worse")


def test_buckets_of_other_sizes_are_matched_by_the_runs_that_agree() -> None:
    before, after = job(), job()
    extra = Bucket(
        bucket=0, bytes=MIB, steps=6, start_ms=10.0, duration_ms=5.0, hidden_share=1.0, exposed_ms=0.0
    )
    shifted = [replace(bucket, bucket=bucket.bucket + 1) for bucket in after.buckets]
    made = compare(before, replace(after, buckets=[extra, *shifted]), NAMES)
    assert [(row.a, row.b, row.bytes) for row in made.buckets] == [
        (None, 0, MIB),
        (0, 1, 25 * MIB),
        (1, 2, 20 * MIB),
    ]
    assert made.buckets[0].figures == []


def test_a_bucket_is_compared_step_by_step() -> None:
    made = compare(job(), job(), NAMES)
    first = {one.figure: (one.a, one.b) for one in made.buckets[1].figures}
    assert first == {"duration_ms": (80.0, 80.0), "exposed_ms": (60.0, 60.0), "hidden_share": (0.25, 0.25)}


def test_findings_are_new_gone_or_stay_with_their_cost() -> None:
    found = samples.finding()
    other = replace(found, cause="straggler", cost_ms=7.0)
    made = compare(replace(job(), findings=[found]), replace(job(), findings=[other]), NAMES)
    assert [(row.cause, row.change, row.a_cost_ms, row.b_cost_ms) for row in made.findings] == [
        ("straggler", "new", None, 7.0),
        ("bucket-too-large", "gone", 40.0, None),
    ]


def test_jobs_that_are_not_alike_are_compared_with_a_warning_each() -> None:
    before = replace(job(), run={"script": "train.py", "versions": {"torch": "2.12.0"}})
    after = replace(job(ranks=1), run={"script": "other.py", "versions": {"torch": "2.13.0"}})
    after = replace(
        after,
        ranks=[replace(rank, world_size=8, backend="nccl", device="cuda") for rank in after.ranks],
        buckets=after.buckets[:1],
    )
    made = compare(before, after, NAMES)
    assert made.warnings == [
        "not the same world size: 2 and 8",
        "not the same recorded ranks: 2 and 1",
        "not the same backend: gloo and nccl",
        "not the same device: cpu and cuda",
        "not the same gradients of a step (another model, precision or accumulation): 45.0 MiB and 25.0 MiB",
        "not the same script: train.py and other.py",
        "not the same torch: 2.12.0 and 2.13.0",
    ]


def test_an_audit_without_steps_is_named_and_compared_in_nothing() -> None:
    made = compare(job(), samples.inconclusive(), NAMES)
    assert made.warnings[-1] == (
        "after has no step that counts: launch records are missing, so backward can't be told from forward"
    )
    assert all(one.change is None for one in made.figures)
    assert made.summary == [
        "comm-bound (serialised) became inconclusive (launch records are missing, so backward can't be told from forward)"
    ]


def test_the_json_obeys_its_schema_and_says_which_it_is() -> None:
    made = compare(replace(job(), findings=[samples.finding()]), samples.no_communication(), NAMES)
    plain = json.loads(msgspec.json.encode(made))
    file = next(file for file in SCHEMAS if file.name == "compare-1.json")
    jsonschema.Draft202012Validator(json.loads(file.read_text("utf-8"))).validate(plain)
    assert plain["schema"] == "stepscope.compare/1"


def test_the_terminal_report_keeps_to_80_columns_and_names_what_got_worse() -> None:
    long = "runs/" + "very-long-name-" * 12
    worse = job([wall * 1.1 for wall in STEADY], exposed=90.0)
    stream = io.StringIO()
    terminal.render(compare(job(), replace(worse, findings=[samples.finding()]), (long, "after")), stream)
    lines = stream.getvalue().splitlines()
    assert max(map(len, lines)) <= 80
    assert lines[1].startswith("A step takes 10.0 % longer (95 % interval ")
    step = next(line.split() for line in lines if line.startswith("  step "))
    assert (step[:4], step[-1]) == (["step", "400.0", "440.0", "+40.0"], "worse")
    assert "  new: bucket-too-large (40.00 ms a step)" in lines


def test_markdown_has_the_same_figures_and_no_name_that_is_markup() -> None:
    evil = "runs/`<script>|x|"
    before = replace(job(), findings=[replace(samples.finding(), cause="<b>|@someone")])
    stream = io.StringIO()
    markdown.render(compare(before, job([wall + 20 for wall in STEADY]), (evil, "after")), stream)
    text = stream.getvalue()
    assert "| step | 400.0 | 420.0 | +20.0 |" in text
    assert "gone: &lt;b&gt;\\|@\u200bsomeone" in text
    assert "- A: `runs/'<script>|x|`" in text
    table = [line for line in text.splitlines() if line.startswith("| ")]
    assert {line.replace("\\|", "").count("|") for line in table} == {7, 11}


@pytest.mark.parametrize("scale", [0.01, 1.0, 30.0])
@pytest.mark.parametrize("noise", [0.0, 0.4])
def test_every_line_keeps_to_80_columns_whatever_the_figures(scale: float, noise: float) -> None:
    walls = [scale * (400.0 + 200.0 * noise * (-1) ** place * place) for place in range(6)]
    other = job([wall * 1.01 for wall in walls], exposed=88.8 * scale, cost=77.7 * scale)
    buckets = [replace(bucket, bytes=int(bucket.bytes or 0) * 7) for bucket in other.buckets]
    stream = io.StringIO()
    terminal.render(compare(job(walls), replace(other, buckets=buckets), NAMES), stream)
    assert max(map(len, stream.getvalue().splitlines())) <= 80
