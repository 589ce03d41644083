"""The HTML report without a browser: which audits become it, what it needs, and that its text is safe to open."""

from __future__ import annotations

import io
import subprocess
import sys
from pathlib import Path

import pytest
from msgspec.structs import replace

import html_audits
import sample_audits
from build_trace import TraceBuilder
from stepscope.cli.main import main
from stepscope.cli.reports import report_for
from stepscope_reports.html import render
from stepscope_reports.html.page import embedded
from stepscope_reports.html.timeline import MOST_BYTES, timeline


@pytest.mark.parametrize("package", ["jinja2", "altair", "vl_convert"])
def test_a_missing_package_is_said_in_one_line_with_what_to_install(package: str) -> None:
    code = (
        f"import sys; sys.modules[{package!r}] = None\n"
        "import io, sample_audits\n"
        "from stepscope.errors import InputError\n"
        "from stepscope_reports.html import render\n"
        "try: render(sample_audits.comm_bound(), io.StringIO())\n"
        "except InputError as error: print(error)\n"
    )
    tests = Path(__file__).resolve().parents[1]
    done = subprocess.run([sys.executable, "-c", code], cwd=tests, capture_output=True, text=True, check=True)
    assert done.stdout == f"this report needs {package}: pip install 'stepscope[html]'\n"


@pytest.mark.parametrize(
    ("output", "report"),
    [
        ("a/report.html", "html"),
        ("REPORT.HTML", "html"),
        ("x.md", "markdown"),
        ("x.txt", "terminal"),
        (None, "terminal"),
    ],
)
def test_a_file_s_suffix_names_the_report(output: str | None, report: str) -> None:
    assert report_for(output) == report


def test_the_command_writes_a_page_for_a_file_that_is_called_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trace = TraceBuilder(rank=0, world_size=2)
    trace.step(5, 0, 1000)
    trace.kernel("gemm", launched=40, start=100, duration=100)
    output = tmp_path / "report.html"
    assert main(["audit", str(trace.write(tmp_path / "rank0.json")), "-o", str(output)]) == 0
    assert capsys.readouterr().out == f"Wrote {output}\n"
    assert output.read_text("utf-8").startswith("<!doctype html>")


def test_nothing_in_embedded_data_ends_its_script_or_a_line_of_it() -> None:
    text = str(embedded({"name": "</script><!--\u2028\u2029&\ud800"}))
    assert text == '{"name":"\\u003c/script\\u003e\\u003c!--\\u2028\\u2029\\u0026\\ud800"}'


def test_a_name_that_is_no_unicode_text_does_not_stop_the_page() -> None:
    audit = html_audits.full()
    broken = [replace(one, name="nccl\ud800") for one in audit.collectives]
    stream = io.BytesIO()
    text = io.TextIOWrapper(stream, encoding="utf-8", write_through=True)
    render(replace(audit, collectives=broken), text)
    assert b"nccl\xef\xbf\xbd" in stream.getvalue() or b"nccl\\ufffd" in stream.getvalue()


def test_three_steps_of_eight_ranks_and_200_layers_are_all_there() -> None:
    drawn = timeline(html_audits.large(ranks=8, steps=3, layers=200))
    assert drawn is not None
    assert (len(drawn["steps"]), len(drawn["views"]), drawn["left_out"]) == (3, 24, 0)


def test_steps_that_would_make_the_page_too_large_are_left_out_but_never_all() -> None:
    drawn = timeline(html_audits.large(ranks=2, steps=30, layers=400))
    assert drawn is not None
    assert 0.5 * MOST_BYTES < len(embedded(drawn)) < 1.2 * MOST_BYTES
    assert drawn["left_out"] == 30 - len(drawn["steps"]) > 0


def test_each_rank_is_on_its_own_axis_where_clocks_cannot_be_those_of_one_step() -> None:
    audit = html_audits.full()
    drawn = timeline(audit)
    apart = timeline(html_audits.started_apart(audit, hours=3))
    assert drawn is not None
    assert apart is not None
    shifts = [view["shift"] - view["begin"] for view in drawn["views"] if view["step"] == 0]
    assert shifts == [0.0, -2.0]
    assert [view["shift"] - view["begin"] for view in apart["views"] if view["step"] == 0] == [0.0, 0.0]


def test_an_audit_without_a_step_has_no_timeline() -> None:
    assert timeline(sample_audits.no_communication()) is None
