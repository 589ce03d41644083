"""`stepscope predict`: what it prints, writes and refuses."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from build_trace import TraceBuilder
from gloo_job import Host, ddp, lay_out
from stepscope.cli.main import main

MIB = 262_144
"""Elements of float32."""


def program(host: Host) -> None:
    host.forward(2000)
    ddp(host, [MIB] * 12, [(12 * MIB, 11)], node_us=2000)
    host.update(1000)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    folder = tmp_path / "traces"
    folder.mkdir()
    for rank, trace in enumerate(lay_out(program, steps=3, per_element=1000 / MIB)):
        trace.write(folder / f"rank{rank}.json")
    return folder


def test_the_table_has_every_cap_now_and_the_best_schedule(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["predict", str(run), "--bucket-cap-mb", "1,2,25"]) == 0
    out = capsys.readouterr().out
    assert all(len(line) <= 80 for line in out.splitlines())
    names = [line.split("  ")[1] for line in out.splitlines() if line.startswith("  ") and "MiB  " in line]
    assert out.startswith("bucket_cap_mb=1: a step of 28.25 ms instead of 39.25 ms")
    assert {"now", "1", "2", "25"} <= {name.strip() for name in names}
    assert "best schedule" in out


@pytest.mark.parametrize(("caps", "rows"), [("script,2", ["now", "2"]), ("script", ["now"])])
def test_the_scripts_own_cap_is_the_row_now_as_in_a_sweep(
    caps: str, rows: list[str], run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["predict", str(run), "--bucket-cap-mb", caps]) == 0
    table = capsys.readouterr().out.partition("cap MiB")[2].partition("best schedule")[0]
    assert [line.split()[0] for line in table.splitlines()[1:-1]] == rows


def test_an_answer_says_in_what_its_bandwidth_is_not_an_audits(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    told = "the ring model of an audit takes all transfers as long as they were"
    assert main(["predict", str(run), "--bucket-cap-mb", "2"]) == 0
    assert told in " ".join(capsys.readouterr().out.split())
    assert main(["predict", str(run), "--bucket-cap-mb", "2", "--bw", "1", "--latency", "1"]) == 0
    assert told not in " ".join(capsys.readouterr().out.split())


def test_json_on_standard_output_is_all_there_is(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["predict", str(run), "--bucket-cap-mb", "2", "--json", "-", "--world-size", "4"]) == 0
    made = json.loads(capsys.readouterr().out)
    assert made["schema"] == "stepscope.predict/1"
    assert made["what_if"] == {"world_size": 4}
    assert [one["bucket_cap_mb"] for one in made["caps"]] == [2.0]
    assert made["caps"][0]["bucket_bytes"] == [2 << 20] * 6


def test_one_rank_of_two_predicts_without_knowing_the_other(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["predict", str(run / "rank0.json"), "--bucket-cap-mb", "2"]) == 0
    assert "2 ranks on cpu" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--bucket-cap-mb", "0"], "'0' is no number above 0"),
        (["--bucket-cap-mb", "-5"], "'-5' is no number above 0"),
        (["--world-size", "1"], "one rank reduces nothing; give --world-size 2 or more"),
        (["--fabric", "nowhere.json"], "cannot read nowhere.json"),
        (["--zero", "4"], "'4' is no ZeRO stage"),
    ],
)
def test_what_makes_no_sense_is_refused_in_one_line(
    run: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], said: str
) -> None:
    assert main(["predict", str(run), *arguments]) == 2
    refused = capsys.readouterr()
    assert refused.out == ""
    assert refused.err.count("\n") == 1
    assert said in refused.err


def test_a_recording_without_ddp_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace = TraceBuilder(rank=0, world_size=1)
    trace.step(5, 0, 1000)
    trace.cpu_op("aten::mm", 10, 500)
    assert main(["predict", str(trace.write(tmp_path / "alone.json"))]) == 2
    assert "predict needs a run of DDP on two ranks or more" in capsys.readouterr().err


@pytest.mark.parametrize(
    "words",
    [
        pytest.param(["predict", "RUN", "--json", "-"], id="predict"),
        pytest.param(["compare", "RUN", "RUN", "--json", "-"], id="compare"),
        pytest.param(["audit", "RUN", "--report", "perfetto", "-o", "-"], id="perfetto"),
    ],
)
def test_a_folder_whose_name_is_no_utf8_is_named_in_results_all_the_same(
    words: list[str], run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = run.rename(run.with_name(os.fsdecode(b"non\xffutf")))
    assert main([str(folder) if word == "RUN" else word for word in words]) == 0
    told = capsys.readouterr().out
    assert json.loads(told)
    assert "perfetto" in words or "non\\\\xffutf" in told
