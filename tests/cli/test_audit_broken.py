"""Kinds of broken input and output that once hung the audit, made it lie, lost its result or ended in a traceback."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from build_trace import AUTOGRAD, MAIN, TraceBuilder
from stepscope.cli.main import main

DAYS_200 = 200 * 86_400 * 1e6


def job(origin: float = 0, rank: int = 0) -> TraceBuilder:
    """One step whose all-reduce of 300 us runs after 200 us of backward."""
    trace = TraceBuilder(rank=rank)
    trace.step(5, origin, 1000)
    trace.backward("MmBackward0", origin + 60, 20)
    trace.kernel("gemm", launched=origin + 65, start=origin + 200, duration=190, thread=AUTOGRAD)
    trace.accumulate_grad(origin + 85, 20)
    trace.kernel("copy", launched=origin + 86, start=origin + 390, duration=10, thread=AUTOGRAD)
    trace.collective("allreduce", launched=origin + 90, start=origin + 400, duration=300, elements=1 << 20)
    return trace


def audited(path: Path, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    assert main(["audit", str(path), "--json", "-"]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def codes(audit: dict[str, Any]) -> list[str]:
    return [warning["code"] for warning in audit["warnings"]]


def test_an_event_long_before_all_others_does_not_hang_the_schedule(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trace = job(DAYS_200)
    trace.cpu_op("stray", 0, 1)
    found = audited(trace.write(tmp_path / "rank0.json"), capsys)
    assert found["ranks"][0]["totals"]["comm_ms"] == 0.3


@pytest.mark.parametrize("duration", [None, "1oo", 9e15], ids=["absent", "no number", "285 years"])
def test_a_collective_without_a_readable_duration_is_no_zero(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], duration: object
) -> None:
    trace = job()
    trace.end(2000)
    for event in trace.events:
        if event["name"].startswith("nccl"):
            event["dur"] = duration
            if duration is None:
                del event["dur"]
    found = audited(trace.write(tmp_path / "rank0.json"), capsys)
    assert "unreadable-events" in codes(found)
    assert found["verdict"]["label"] == "inconclusive"


@pytest.mark.parametrize("world_size", [0, -1, 10**30])
def test_a_world_size_that_is_none_is_unknown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], world_size: int
) -> None:
    for rank in (0, 1):
        trace = job(rank=rank)
        trace.header["distributedInfo"]["world_size"] = world_size
        for event in trace.events:
            event["args"].pop("Group size", None)
            event["args"].pop("Process Group Ranks", None)
        trace.write(tmp_path / f"rank{rank}.json")
    found = audited(tmp_path, capsys)
    assert all("world_size" not in rank for rank in found["ranks"])
    assert all("bus_gb_per_s" not in collective for collective in found["collectives"])


def test_step_marks_that_repeat_a_number_are_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace = job()
    trace.step(5, 1000, 1000)
    found = audited(trace.write(tmp_path / "rank0.json"), capsys)
    assert [step["step"] for step in found["ranks"][0]["steps"]] == [5]
    assert "repeated-steps" in codes(found)


def test_a_step_that_ends_where_backward_does_is_replayed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for rank in (0, 1):
        trace = TraceBuilder(rank=rank, backend="gloo")
        trace.step(5, 0, 200)
        trace.cpu_op("aten::mm", 10, 50)
        trace.accumulate_grad(100, 100, thread=MAIN)
        trace.cpu_op("aten::mul", 105, 10)
        trace.gloo("all_reduce", 130, 60, elements=64, launched=120)
        trace.write(tmp_path / f"rank{rank}.json")
    assert audited(tmp_path, capsys)["ranks"][0]["totals"]["comm_ms"] == 0.06


@pytest.mark.parametrize("depth", [2_000, 100_000])
def test_deep_nesting_ends_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], depth: int
) -> None:
    text = json.dumps(job().document())
    nested = '{"a":' * depth + "1" + "}" * depth
    file = tmp_path / "rank0.json"
    file.write_text(text.replace('"args": {', '"args": {"x": ' + nested + ", ", 1))
    code = main(["audit", str(file)])
    printed = capsys.readouterr()
    assert "Traceback" not in printed.err
    assert code in (0, 2)
    if code == 2:
        assert len(printed.err.splitlines()) == 1


def test_a_pipe_is_refused_at_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    os.mkfifo(tmp_path / "rank0.json")
    assert main(["audit", str(tmp_path / "rank0.json")]) == 2
    assert "save the trace to a file first" in capsys.readouterr().err


@pytest.mark.parametrize("options", [["-o", "{trace}", "--force"], ["-o", "{new}", "--json", "{new}"]])
def test_no_output_replaces_an_input_or_another_output(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], options: list[str]
) -> None:
    trace = job().write(tmp_path / "rank0.json")
    before = trace.read_bytes()
    given = [option.format(trace=trace, new=tmp_path / "new") for option in options]
    assert main(["audit", str(trace), *given]) == 2
    assert "named twice" in capsys.readouterr().err
    assert trace.read_bytes() == before


def test_two_outputs_do_not_share_standard_output(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace = job().write(tmp_path / "rank0.json")
    assert main(["audit", str(trace), "--report", "json", "-o", "-", "--json", "-"]) == 2
    assert capsys.readouterr() == (
        "",
        "stepscope: error: two outputs go to standard output (-) and would run into one another; name a file for one\n",
    )


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_what_was_asked_for_is_written_though_standard_output_is_full(tmp_path: Path) -> None:
    trace = job().write(tmp_path / "rank0.json")
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "stepscope", "audit", str(trace), "--json", str(tmp_path / "audit.json")],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert done.returncode == 2
    assert done.stderr == "stepscope: error: [Errno 28] No space left on device\n"
    assert json.loads((tmp_path / "audit.json").read_text())["schema"] == "stepscope.audit/1"


@pytest.mark.parametrize("path", ["", "x" * 5000])
def test_a_path_that_is_none_ends_in_one_line(capsys: pytest.CaptureFixture[str], path: str) -> None:
    assert main(["audit", path]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1


@pytest.mark.skipif(sys.platform != "linux", reason="file names are bytes on Linux alone")
def test_a_file_name_that_is_no_utf_8_is_written_with_escapes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / os.fsdecode(b"non\xffutf")
    folder.mkdir()
    trace = job()
    trace.end(2000)
    trace.write(folder / "rank0.json")
    assert audited(folder, capsys)["ranks"][0]["source"].endswith("non\\xffutf/rank0.json")
