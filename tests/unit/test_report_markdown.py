"""The Markdown report: fits a comment, says what audit.json says, and lets no name become markup."""

from __future__ import annotations

import io
import json
import re
from dataclasses import dataclass, field
from html.parser import HTMLParser
from statistics import fmean
from typing import Any

import msgspec
import pytest
from markdown_it import MarkdownIt
from msgspec.structs import replace

import sample_audits
from stepscope.audit.result import Audit, Recommendation, Warning
from stepscope_reports.markdown import LIMIT_BYTES, render
from stepscope_reports.markup import escaped, folded

EVIL = "<script>alert(1)</script>|`x` *b* @someone #12\n```\n</details>\n# head https://evil.example $x$"


def text_of(audit: Audit) -> str:
    stream = io.StringIO()
    render(audit, stream)
    return stream.getvalue()


def html_of(text: str) -> str:
    return str(MarkdownIt("commonmark", {"html": True}).enable("table").render(text))


@dataclass
class Page(HTMLParser):
    """The tags of a page, its table rows and its text as a reader sees it."""

    tags: set[str] = field(default_factory=set)
    rows: list[list[str]] = field(default_factory=list)
    text: str = ""

    def __post_init__(self) -> None:
        super().__init__(convert_charrefs=True)

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.tags.add(tag)
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_data(self, data: str) -> None:
        self.text += data
        if self.rows and self.rows[-1] and self.lasttag in ("td", "th"):
            self.rows[-1][-1] += data


def page_of(audit: Audit) -> Page:
    page = Page()
    page.feed(html_of(text_of(audit)))
    return page


def with_findings() -> Audit:
    found = sample_audits.finding()
    audit = sample_audits.comm_bound()
    verdict = replace(audit.verdict, next_step=found.fix)
    return replace(
        audit,
        verdict=verdict,
        findings=[found, replace(found, cause="straggler", cost_ms=None, cost_ms_ci=None)],
    )


def test_the_answer_comes_before_anything_folded() -> None:
    answer, _ = text_of(with_findings()).split("<details>", maxsplit=1)
    lines = [line for line in answer.splitlines() if line]
    assert lines[0] == (
        "**comm-bound (serialised): communication costs 15.0 % of the step (median; 95 % interval 14.8 to 15.3 %); "
        "66.7 % of gradient communication hides behind backward**"
    )
    assert (
        lines[2] == "**What to do:** lower bucket\\_cap\\_mb to 8 (costs 40.00 ms a step now, 10.0 % of it)"
    )
    assert len(lines) < 24


def test_every_figure_of_the_tables_is_that_of_the_audit() -> None:
    audit = with_findings()
    plain: dict[str, Any] = json.loads(msgspec.json.encode(audit))
    steps = [step for rank in plain["ranks"] for step in rank["steps"] if step["valid"]]
    rows = {row[0].strip(): [cell.strip() for cell in row[1:]] for row in page_of(audit).rows}

    def mean(*path: str) -> float:
        def value(step: dict[str, Any]) -> float:
            found: Any = step
            for name in path:
                found = found[name]
            return float(found)

        return fmean(map(value, steps))

    expected = {
        "step": mean("wall_ms"),
        "communication": mean("comm_ms"),
        "gradients": mean("grad", "comm_ms"),
        "hidden by backward": mean("grad", "hidden_backward_ms"),
        "hidden by other compute": mean("grad", "hidden_other_ms"),
        "exposed": mean("grad", "exposed_ms"),
        "exposed, all communication": mean("exposed_ms"),
        "floor of gradients": mean("grad", "floor_ms"),
        "cost of communication": mean("cost_ms"),
    }
    assert {name: float(rows[name][0]) for name in expected} == expected
    assert rows["bucket-too-large"] == ["40.00", "38.50 to 41.25", "10.0 %", "lower bucket_cap_mb to 8"]
    assert rows["straggler"] == ["n/a", "", "n/a", "lower bucket_cap_mb to 8"]


def test_buckets_in_the_folded_part_are_those_of_the_audit() -> None:
    audit = with_findings()
    lines = text_of(audit).split("<summary>Buckets")[1].split("```")[1].splitlines()[2:]
    shown = [line.split() for line in lines]
    assert [(int(row[0]), float(row[6]), float(row[10])) for row in shown] == [
        (bucket.bucket, bucket.start_ms, bucket.exposed_ms) for bucket in audit.buckets
    ]


def test_names_are_text_wherever_they_stand() -> None:
    audit = with_findings()
    audit = replace(
        audit,
        verdict=replace(audit.verdict, reason=EVIL, explanation=EVIL, next_step=EVIL),
        findings=[replace(audit.findings[0], cause=EVIL, fix=EVIL, evidence=[EVIL, "``````"])],
        warnings=[Warning(code=EVIL, message=EVIL, source=EVIL)],
        collectives=[replace(one, kind=EVIL, role=EVIL, name=EVIL) for one in audit.collectives],
        ranks=[replace(rank, source=EVIL, device=EVIL, backend=EVIL) for rank in audit.ranks],
    )
    page = page_of(audit)
    allowed = {
        "p",
        "strong",
        "table",
        "thead",
        "tbody",
        "tr",
        "th",
        "td",
        "sub",
        "pre",
        "code",
        "details",
        "summary",
    }
    assert page.tags <= allowed
    assert {len(row) for row in page.rows} == {3, 5}
    outside_code = re.sub(r"<code.*?</code>", "", html_of(text_of(audit)), flags=re.DOTALL)
    assert "@someone" not in outside_code
    assert "https://" not in outside_code
    assert outside_code.count("<details>") == outside_code.count("</details>")
    assert "<script>alert(1)</script>" in page.text


def test_a_fence_is_longer_than_any_in_its_text() -> None:
    assert folded("t", ["````", "x"])[3:7] == ["`````text", "````", "x", "`````"]
    assert folded("t", []) == []


def test_escapes_keep_what_a_reader_sees() -> None:
    for name in (
        "a_b",
        "vector<int>",
        "f|g",
        "`q`",
        "ncclDevKernel_AllReduce_Sum_f32",
        "a\\b",
        "50 % & more",
    ):
        assert html_of(escaped(name)).strip() == html_of("x").strip().replace(
            "x", name.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
        )


def test_a_comment_is_never_too_long() -> None:
    audit = with_findings()
    long = replace(
        audit,
        warnings=[Warning(code=f"w{n}", message=f"{n} is odd " * 40) for n in range(400)],
        findings=[
            replace(audit.findings[0], cause=f"cause-{n}", fix="x" * 5000, evidence=["é" * 3000] * 4)
            for n in range(40)
        ],
    )
    text = text_of(long)
    assert len(text.encode()) <= LIMIT_BYTES
    assert text.endswith("Warnings (400). audit.json has all.\n")
    assert "and 28 findings more; audit.json has all" in text
    assert text.count("<details>") == text.count("</details>")


def test_what_was_not_measured_is_left_out() -> None:
    text = text_of(sample_audits.no_communication())
    assert text.startswith("**no communication: no collective was recorded**\n\nOverlap is not applicable.\n")
    assert "|" not in text.split("<details>")[0]
    assert "nan" not in text.lower()


def test_the_bucket_size_that_is_predicted_to_help_is_part_of_the_answer() -> None:
    one = Recommendation(bucket_cap_mb=5, buckets=7, step_ms=346.4, gain_ms=7.94, gain_ms_ci=(5.69, 9.45))
    answer, _ = text_of(replace(with_findings(), recommendation=one)).split("<details>", maxsplit=1)
    assert "**Bucket size:** `bucket_cap_mb=5` is predicted to make a step 7.94 ms shorter" in answer
    assert "(95 % interval 5.69 ms to 9.45 ms), with 7 buckets; `stepscope predict` has" in answer


@pytest.mark.parametrize(
    ("parts", "told"),
    [
        ({}, "with 7 buckets; `"),
        ({"late_start_ms": 0.05}, "with 7 buckets; `"),
        (
            {"contention_ms": 2.0, "late_start_ms": 1.0},
            "with 7 buckets: 5.00 ms less waiting for transfers, 1.00 ms less waiting for them to start, 2.00 ms less compute "
            "slowed beside them (medians over steps; the cost of communication counts the first alone); `",
        ),
        (
            {"contention_ms": -2.0},
            "with 7 buckets: 10.00 ms less waiting for transfers, 2.00 ms more compute slowed beside them (",
        ),
    ],
)
def test_what_of_a_gain_is_no_part_of_the_cost_is_said(parts: dict[str, float], told: str) -> None:
    """8 ms shorter; the cost of communication leaves contention and late starts apart, the gain does not."""
    plain = Recommendation(bucket_cap_mb=5, buckets=7, step_ms=346, gain_ms=8, gain_ms_ci=(7, 9))
    one = replace(plain, **parts)
    assert told in text_of(replace(with_findings(), recommendation=one))


def test_the_advice_of_the_costliest_cause_says_what_it_is_worth() -> None:
    audit = with_findings()
    finding = audit.findings[0]
    advised = replace(audit.verdict, next_step=f"{finding.cause}: {finding.fix}")
    assert (
        "a step now, "
        in text_of(replace(audit, verdict=advised)).split("What to do:", 1)[1].split("\n", 1)[0]
    )
