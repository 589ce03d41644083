"""`stepscope compare` from outside: what A and B may be, where it writes, how it ends."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

import sample_audits
from exposed_trace import write_trace
from stepscope.cli.main import main


@pytest.fixture
def before(tmp_path: Path) -> Path:
    """A folder of two ranks' traces whose all-reduces are hidden."""
    return traces(tmp_path / "before", 0.0)


@pytest.fixture
def after(tmp_path: Path) -> Path:
    return traces(tmp_path / "after", 300.0)


def traces(folder: Path, exposed_us: float) -> Path:
    for rank in (0, 1):
        write_trace(folder / f"rank{rank}.json", rank=rank, exposed_us=exposed_us)
    return folder


def test_two_folders_of_traces_are_audited_and_compared(
    before: Path, after: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["compare", str(before), str(after)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "Comm-sensitive (hidden now) became comm-bound (serialised)"
    overlap = next(line.split() for line in lines if line.startswith("  overlap "))
    assert overlap == ["overlap", "100.0", "%", "0.0", "%", "-100.0", "-100.0", "to", "-100.0", "worse"]
    assert max(map(len, lines)) <= 80


def test_an_audit_a_run_directory_and_traces_are_the_same_to_it(
    before: Path, after: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kept = tmp_path / "run" / "audit.json"
    kept.parent.mkdir()
    assert main(["audit", str(before), "--json", str(kept)]) == 0
    capsys.readouterr()
    said = []
    for name in (kept, kept.parent, before):
        assert main(["compare", str(name), str(after), "--json", "-"]) == 0
        plain = json.loads(capsys.readouterr().out)
        plain["a"]["name"] = ""
        said.append(plain)
    assert said[0] == said[1] == said[2]
    assert said[0]["schema"] == "stepscope.compare/1"


def test_a_report_for_a_pull_request_goes_to_a_file_that_is_not_replaced_unasked(
    before: Path, after: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "comment.md"
    arguments = ["compare", str(before), str(after), "--report", "markdown", "-o", str(page)]
    assert main(arguments) == 0
    assert capsys.readouterr().out == f"Wrote {page}\n"
    assert page.read_text("utf-8").startswith(
        "**Comm-sensitive (hidden now) became comm-bound (serialised)**\n"
    )
    assert main(arguments) == 2
    assert f"{page} exists; pass --force to replace it" in capsys.readouterr().err
    assert main([*arguments, "--force"]) == 0


@pytest.mark.parametrize(
    ("number", "told"),
    [
        ("1e308", "ranks[0].steps[0].wall_ms is 1e+308, too large to be true"),
        ("-1e20", "ranks[0].steps[0].wall_ms is -1e+20, too large to be true"),
        ("1" + 400 * "0", "ranks[0].steps[0].collectives is a number of 401 digits, too large to be true"),
        ("1e999", "out of range"),
        ("NaN", "huge.json"),
    ],
)
def test_a_number_that_no_clock_or_memory_has_is_one_line(
    number: str, told: str, after: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whatever field has it: an integer of 400 digits, a float that squares to infinity."""
    audit = msgspec.to_builtins(sample_audits.comm_bound())
    audit["ranks"][0]["steps"][0]["collectives" if number.isdecimal() else "wall_ms"] = "HERE"
    file = tmp_path / "huge.json"
    file.write_text(json.dumps(audit).replace('"HERE"', number), "utf-8")
    assert main(["compare", str(file), str(after)]) == 2
    err = capsys.readouterr().err
    assert told in err
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("content", "line"),
    [
        (
            '{"schema": "stepscope.run/1"}',
            "is no audit of stepscope.audit/1 but of stepscope.run/1; name an audit.json or a run directory",
        ),
        ('{"schema": "stepscope.audit/1"}', "missing required field `stepscope`; make it again with"),
        ("[]", "nothing.json"),
        ("{", "nothing.json"),
    ],
)
def test_a_file_that_is_neither_audit_nor_trace_is_one_line(
    content: str, line: str, after: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "nothing.json"
    file.write_text(content, "utf-8")
    assert main(["compare", str(file), str(after)]) == 2
    err = capsys.readouterr().err
    assert line in err
    assert err.count("\n") == 1
