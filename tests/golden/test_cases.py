"""Odd and malformed inputs, each with what an audit makes of it; faults that people reported with real traces."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from stepscope.cli.main import main

PLAIN = {
    "comm_ms": 0.1,
    "compute_ms": 0.2,
    "backward_compute_ms": 0.1,
    "hidden_backward_ms": 0.05,
    "hidden_other_ms": 0.0,
    "exposed_ms": 0.05,
}


def audit_of(path: Path, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    assert main(["audit", str(path), "--json", "-"]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def codes(audit: dict[str, Any]) -> list[str]:
    return [warning["code"] for warning in audit["warnings"]]


def figures(rank: dict[str, Any]) -> dict[str, float]:
    return {figure: rank["totals"][figure] for figure in PLAIN}


@pytest.mark.parametrize(
    ("case", "rank", "warned"),
    [
        ("plain/rank0.json", 0, ["ranks-missing"]),
        ("distributed_info_last.json", 0, ["ranks-missing"]),
        ("infinity_in_args.json", 0, ["unreadable-values", "ranks-missing"]),
        ("no_distributed_info.json", None, ["rank-unknown"]),
    ],
)
def test_a_readable_oddity_changes_no_figure(
    shared: Path, capsys: pytest.CaptureFixture[str], case: str, rank: int | None, warned: list[str]
) -> None:
    audit = audit_of(shared / "cases" / case, capsys)
    (found,) = audit["ranks"]
    assert figures(found) == PLAIN
    assert found.get("rank") == rank
    assert codes(audit) == warned


@pytest.mark.parametrize("case", ["truncated.json.gz", "truncated_mid_string.json"])
def test_of_a_truncated_file_what_is_whole_is_audited(
    shared: Path, capsys: pytest.CaptureFixture[str], case: str
) -> None:
    audit = audit_of(shared / "cases" / case, capsys)
    assert audit["ranks"][0]["totals"]["compute_ms"] == PLAIN["compute_ms"]
    assert codes(audit) == ["truncated", "ranks-missing"]
    assert audit["verdict"]["label"] == "inconclusive"
    assert "truncated" in audit["verdict"]["reason"]


@pytest.mark.parametrize(
    ("case", "says"), [("empty.json", "the file is empty"), ("not_a_trace.json", "no traceEvents")]
)
def test_what_is_no_trace_ends_in_one_line_with_exit_code_2(
    shared: Path, capsys: pytest.CaptureFixture[str], case: str, says: str
) -> None:
    assert main(["audit", str(shared / "cases" / case)]) == 2
    printed = capsys.readouterr()
    (line,) = printed.err.splitlines()
    assert printed.out == ""
    assert case in line
    assert says in line
    assert "expected a Kineto trace" in line


def test_events_without_categories_are_inconclusive(shared: Path, capsys: pytest.CaptureFixture[str]) -> None:
    audit = audit_of(shared / "cases/bare_list_no_categories.json", capsys)
    assert audit["verdict"]["label"] == "inconclusive"
    assert "without device activities" in audit["verdict"]["reason"]


def test_the_same_rank_twice_is_never_added_up(shared: Path, capsys: pytest.CaptureFixture[str]) -> None:
    audit = audit_of(shared / "cases/same_rank_twice", capsys)
    assert [rank["rank"] for rank in audit["ranks"]] == [0, 0]
    assert [figures(rank) for rank in audit["ranks"]] == [PLAIN, PLAIN]
    assert codes(audit) == ["same-rank-twice", "ranks-missing"]


def test_without_launch_records_backward_figures_are_absent(
    shared: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    audit = audit_of(shared / "cases/no_launch_records.json", capsys)
    totals = audit["ranks"][0]["totals"]
    assert totals["hidden_ms"] == 0.05
    assert not {"backward_compute_ms", "hidden_backward_ms", "hidden_other_ms"} & set(totals)
    assert audit["verdict"]["label"] == "inconclusive"
    assert "no-launch-records" in codes(audit)
    assert {collective["phase"] for collective in audit["collectives"]} == {"unknown"}


def test_without_collectives_overlap_does_not_apply(shared: Path, capsys: pytest.CaptureFixture[str]) -> None:
    audit = audit_of(shared / "cases/no_collectives.json", capsys)
    assert audit["verdict"]["label"] == "no communication"
    assert not {"overlap_backward", "cost_share", "comm_share"} & set(audit["verdict"])
