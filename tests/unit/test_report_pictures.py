"""The overview picture: one specification as SVG and as PNG."""

from __future__ import annotations

import io
from pathlib import Path
from xml.etree import ElementTree

import pytest
from msgspec.structs import replace

import sample_audits
from build_trace import TraceBuilder
from stepscope.audit.result import Audit
from stepscope.cli.main import main
from stepscope_reports.pictures import overview, render_png, render_svg

PNG = b"\x89PNG\r\n\x1a\n"


def words_of(audit: Audit) -> list[str]:
    """The texts of the SVG, in the order of the document."""
    stream = io.StringIO()
    render_svg(audit, stream)
    root = ElementTree.fromstring(stream.getvalue())
    return ["".join(element.itertext()) for element in root.iter() if element.tag.endswith("}text")]


def test_the_picture_says_the_verdict_and_has_a_chart_of_each_kind() -> None:
    words = words_of(sample_audits.comm_bound())
    assert any(word.startswith("comm-bound (serialised): communication costs 15.0 %") for word in words)
    titles = ("One counted step", "Where exposed time went", "Buckets, from the start of backward")
    places = [next(n for n, word in enumerate(words) if word.startswith(title)) for title in titles]
    assert len(places) == 3
    assert {"forward", "backward", "optimizer", "exposed, in all"} <= set(words)


def test_each_chart_keeps_its_own_colours() -> None:
    spec = overview(sample_audits.comm_bound()).to_dict()
    assert len(spec["vconcat"]) == 3
    assert spec["resolve"] == {"scale": {"color": "independent"}}
    assert not any("config" in part or "autosize" in part for part in spec["vconcat"])


def test_an_audit_without_a_step_is_its_verdict() -> None:
    words = words_of(sample_audits.no_communication())
    assert words[:2] == ["no communication: no collective was recorded", "1 file on rocm"]


def test_names_in_the_picture_are_text() -> None:
    audit = sample_audits.comm_bound()
    verdict = replace(audit.verdict, reason="<script>&'\"</text>")
    assert any("<script>&'\"</text>" in word for word in words_of(replace(audit, verdict=verdict)))


def test_png_is_twice_as_large_as_svg() -> None:
    stream, text = io.BytesIO(), io.StringIO()
    render_png(sample_audits.no_communication(), stream)
    render_svg(sample_audits.no_communication(), text)
    data = stream.getvalue()
    assert data.startswith(PNG)
    root = ElementTree.fromstring(text.getvalue())
    size = [int.from_bytes(data[at : at + 4], "big") for at in (16, 20)]
    assert size == [2 * int(root.attrib["width"]), 2 * int(root.attrib["height"])]


def test_the_command_writes_a_png(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace = TraceBuilder(rank=0, world_size=2)
    trace.step(5, 0, 1000)
    trace.kernel("gemm", launched=40, start=100, duration=100)
    output = tmp_path / "overview.png"
    source = str(trace.write(tmp_path / "rank0.json"))
    assert main(["audit", source, "--report", "png", "-o", str(output)]) == 0
    assert output.read_bytes().startswith(PNG)
    assert capsys.readouterr().out == f"Wrote {output}\n"


def test_bytes_are_not_printed_on_a_terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    assert main(["audit", str(tmp_path), "--report", "png"]) == 2
    assert capsys.readouterr().err == (
        "stepscope: error: the report png is no text for a terminal; name a file with -o\n"
    )
