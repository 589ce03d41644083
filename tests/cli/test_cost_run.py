"""`stepscope cost --fabric` and `--run`: what is measured, what overrides it, and the model beside a recorded run."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from measured_runs import (
    BUCKETS,
    audit,
    calibration,
    fit,
    fsdp,
    run_metadata,
    write_calibration,
    write_run,
)
from stepscope.cli.main import main

JOB = ("cost", "--gpus", "2", "--params", "0.0075", "--bytes-per-param", "4", "--step-ms", "400")


def printed(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> str:
    assert main([*map(str, arguments)]) == 0
    return capsys.readouterr().out


def made(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> dict[str, Any]:
    read: dict[str, Any] = json.loads(printed(capsys, *arguments, "--json", "-"))
    return read


def inputs(budget: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {row["name"]: row for row in budget["inputs"]}


def test_latency_and_bandwidth_come_from_the_calibration_with_interval_and_file(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    fabric = write_calibration(tmp_path)
    budget = made(capsys, *JOB, "--fabric", fabric)
    rows = inputs(budget)
    assert rows["bandwidth"] == {
        "name": "bandwidth",
        "option": "--bw",
        "value": 0.1,
        "unit": "GB/s",
        "origin": "measured",
        "interval": [0.098, 0.103],
        "source": str(fabric),
    }
    assert (rows["latency a hop"]["value"], rows["latency a hop"]["interval"]) == (
        pytest.approx(50.0),
        [45.0, 56.0],
    )
    assert rows["short bucket's least"]["value"] == pytest.approx(400.0)
    assert rows["the fit holds from, to"]["value"] == [0.0625, pytest.approx(15.26, abs=0.01)]
    assert budget["communication"]["ring"]["total_ms"] == pytest.approx(2 * 0.05 + 30e6 / 0.1e9 * 1e3)
    assert "comparison" not in budget


def test_the_inputs_say_measured_with_the_interval_and_the_file(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_calibration(tmp_path)
    monkeypatch.chdir(tmp_path)
    text = printed(capsys, *JOB, "--fabric", "fabric.json")
    (line,) = [line for line in text.splitlines() if "--latency  " in line]
    assert line.startswith("  measured      --latency          latency a hop           50 us (45 to 56),")
    assert "Buckets of 16, 25, 100 MiB are outside of the sizes" in " ".join(text.split())


def test_a_bandwidth_without_an_upper_end_is_said_to_have_none(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    fabric = write_calibration(tmp_path, calibration(own=fit(bandwidth_gb_per_s_interval=(0.09, None))))
    assert "0.1 GB/s (0.09 to any)" in " ".join(printed(capsys, *JOB, "--fabric", fabric).split())
    assert inputs(made(capsys, *JOB, "--fabric", fabric))["bandwidth"]["interval"] == [0.09, None]


def test_short_buckets_take_the_measured_floor(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    fabric = write_calibration(tmp_path)
    budget = made(capsys, *JOB, "--fabric", fabric, "--buckets", "0.01,8")
    short, long = budget["communication"]["buckets"]
    assert short["count"] == 2862
    assert short["total_ms"] == pytest.approx(2862 * 0.4)
    assert long["total_ms"] == pytest.approx(4 * 0.1 + 300.0)


def test_an_option_overrides_what_was_measured_and_says_so(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    fabric = write_calibration(tmp_path)
    budget = made(capsys, *JOB, "--fabric", fabric, "--bw", "0.2")
    rows = inputs(budget)
    assert (rows["bandwidth"]["value"], rows["bandwidth"]["origin"]) == (0.2, "command line")
    assert "interval" not in rows["bandwidth"]
    assert rows["latency a hop"]["origin"] == "measured"
    assert budget["remarks"] == [f"--bw overrides the 0.1 GB/s that {fabric} measured."]
    assert "the fit holds from, to" not in rows


def test_another_number_of_ranks_is_taken_with_a_caution_and_without_the_floor(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    fabric = write_calibration(tmp_path)
    budget = made(capsys, *JOB, "--gpus", "4", "--fabric", fabric)
    assert budget["remarks"][0].startswith(f"{fabric} was measured on 2 ranks and serves 4 here")
    assert "short bucket's least" not in inputs(budget)
    assert budget["communication"]["ring"]["total_ms"] == pytest.approx(6 * 0.05 + 1.5 * 300.0)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            None,
            "cannot read fabric.json: No such file or directory; `stepscope calibrate --out fabric.json` makes one",
        ),
        (
            b'{"schema": "stepscope.run/1"}',
            "fabric.json is no stepscope.fabric/1 file but stepscope.run/1; make one with",
        ),
        (b"not JSON", "fabric.json is damaged (JSON is malformed"),
    ],
)
def test_a_file_that_is_no_calibration_is_one_line_and_exit_code_2(
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    content: bytes | None,
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    if content is not None:
        Path("fabric.json").write_bytes(content)
    refused(capsys, message, *JOB, "--fabric", "fabric.json")


def refused(capsys: pytest.CaptureFixture[str], message: str, *arguments: str | Path) -> None:
    assert main([*map(str, arguments)]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith(f"stepscope: error: {message}")
    assert captured.err.count("\n") == 1


def test_a_calibration_of_another_machine_is_refused(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    fabric = write_calibration(tmp_path, calibration("node7"))
    refused(capsys, f"{fabric} was measured on node7, not on ", *JOB, "--fabric", fabric)


def test_a_run_and_a_calibration_of_the_same_other_machine_go_together(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    fabric = write_calibration(tmp_path, calibration("node7"))
    run = write_run(tmp_path, run=run_metadata(hosts=["node7"]))
    assert made(capsys, "cost", "--run", run, "--fabric", fabric)["comparison"]["label"] == "comm-bound"


def test_a_calibration_without_a_latency_is_refused_until_one_is_given(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    fabric = write_calibration(tmp_path, calibration(own=fit(alpha_us=0.0)))
    refused(capsys, f"{fabric} leaves no latency above 0", *JOB, "--fabric", fabric)
    assert inputs(made(capsys, *JOB, "--fabric", fabric, "--latency", "9"))["latency a hop"][
        "value"
    ] == pytest.approx(9)


def test_a_calibration_without_a_latency_is_enough_to_compare_with(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    fabric = write_calibration(tmp_path, calibration(own=fit(alpha_us=0.0)))
    budget = made(capsys, "cost", "--run", write_run(tmp_path), "--fabric", fabric)
    assert "verdict" not in budget
    assert [row["model_ms"] for row in budget["comparison"]["sizes"]] == pytest.approx([100.0, 200.0])
    assert budget["limits"][0].startswith("The calibration found no latency above 0")


def test_everything_but_the_link_comes_from_a_recorded_run(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    run = write_run(tmp_path)
    rows = inputs(made(capsys, "cost", "--run", run, "--bw", "0.1", "--latency", "50"))
    recorded = {name: row["value"] for name, row in rows.items() if row["origin"] == "recorded run"}
    assert recorded == {
        "ranks": 2,
        "parameters": pytest.approx(0.0075),
        "on the wire": pytest.approx(4.0),
        "compute, micro-batch": pytest.approx(400.0),
        "backward's share": pytest.approx(0.75),
        "ZeRO stage": 0,
        "bucket sizes": [size / 2**20 for size in BUCKETS],
    }
    assert {row["source"] for row in rows.values() if row["origin"] == "recorded run"} == {str(run)}


BESIDE = """\
Gradient collectives, model beside measurement
  size      collective  a step  measured ms   from     to  model ms  model off
  9.5 MiB   all-reduce       1        100.0  100.0  100.0     100.1     +0.1 %
  19.1 MiB  all-reduce       1        260.0  260.0  260.0     200.1    -23.0 %
  measured: median and quartiles of transfers; the model by the calibration.
  19.1 MiB: above the range in which the fit holds (64.0 KiB to 15.3 MiB).

A step's gradients
                 measured ms  model ms  model off
  communication        360.0     300.2    -16.6 %
    hidden             100.0     100.1     +0.1 %
    exposed            260.0     200.1    -23.0 %
    floor              250.0         -          -
  measured: medians over steps, which need not add up.
  Another 60.00 ms a step were waiting for a late rank, which no model of a link
  has.
"""


def test_the_model_stands_beside_the_measurement_bucket_by_bucket(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    text = printed(capsys, "cost", "--run", write_run(tmp_path), "--fabric", write_calibration(tmp_path))
    assert BESIDE in text


def test_the_measured_verdict_comes_first_and_is_not_replaced(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_run(tmp_path)
    write_calibration(tmp_path)
    monkeypatch.chdir(tmp_path)
    text = printed(capsys, "cost", "--run", "recorded", "--fabric", "fabric.json")
    first, second, *_ = text.split("model")
    assert first == "comm-bound (link), measured in 3 steps of recorded. No "
    assert second.split() == [
        "replaces",
        "it;",
        "this",
        "one",
        "says:",
        "communication-sensitive,",
        "by",
        "the",
    ]
    assert [line for line in text.splitlines() if len(line) > 80] == []


def test_without_a_link_nothing_is_predicted(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    run = write_run(tmp_path)
    budget = made(capsys, "cost", "--run", run)
    assert {"verdict", "communication", "memory"} & set(budget) == set()
    assert [row["measured_ms"] for row in budget["comparison"]["sizes"]] == pytest.approx([100.0, 260.0])
    assert all("model_ms" not in row for row in budget["comparison"]["sizes"])
    assert "measure them with `stepscope calibrate`" in " ".join(
        printed(capsys, "cost", "--run", run).split()
    )


def test_a_link_with_one_half_missing_is_asked_for_the_other(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    refused(
        capsys,
        "the following arguments are required: --latency; --fabric and --run can stand for some",
        *("cost", "--run", write_run(tmp_path), "--bw", "25"),
    )


def test_a_calibration_stands_for_the_link_and_for_nothing_else(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    refused(
        capsys,
        "the following arguments are required: --gpus, --params, --step-ms; --fabric and --run",
        *("cost", "--fabric", write_calibration(tmp_path)),
    )


def test_an_option_goes_before_the_run_and_says_so(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    run = write_run(tmp_path)
    budget = made(capsys, "cost", "--run", run, "--bw", "0.1", "--latency", "50", "--step-ms", "800")
    assert inputs(budget)["compute, micro-batch"]["origin"] == "command line"
    assert budget["step_ms"] == 800.0
    assert budget["remarks"][0] == f"--step-ms: given on the command line, and not taken from {run}."
    assert budget["comparison"]["model"] == "the link given"


def test_micro_batches_share_the_compute_of_the_recorded_step(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    run = write_run(tmp_path)
    budget = made(capsys, "cost", "--run", run, "--bw", "0.1", "--latency", "50", "--accumulate", "4")
    assert inputs(budget)["compute, micro-batch"]["value"] == pytest.approx(100.0)
    assert budget["step_ms"] == pytest.approx(400.0)


def test_times_that_hold_waiting_are_said_to(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    run = write_run(tmp_path, audit(paired=False, duration_ms=150.0))
    budget = made(capsys, "cost", "--run", run, "--fabric", write_calibration(tmp_path))
    step, first = budget["comparison"]["step"], budget["comparison"]["sizes"][0]
    assert (first["measured_ms"], first["waiting_included"]) == (pytest.approx(150.0), True)
    assert first["remarks"][0] == (
        "the time holds waiting for other ranks, for their sides of it were not recorded"
    )
    assert (step["waiting_included"], step["communication_ms"], step["hidden_ms"]) == (True, 420.0, 160.0)


def test_units_of_fsdp_are_held_against_the_reduce_scatter_that_was_calibrated(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    run = write_run(tmp_path, audit(kind="reduce_scatter"), run_metadata(ddp=[], fsdp=[fsdp()]))
    fabric = write_calibration(
        tmp_path, calibration(reduce_scatter=fit(bandwidth_gb_per_s=0.05, alpha_us=10.0))
    )
    budget = made(capsys, "cost", "--run", run, "--fabric", fabric)
    rows = budget["comparison"]["sizes"]
    assert [row["model_ms"] for row in rows] == pytest.approx([0.01 + 100.0, 0.01 + 200.0])
    assert budget["zero"] == 3
    assert budget["comparison"]["remarks"][-1].startswith("Gradients alone are compared: all-gathers")


def test_a_calibration_of_another_network_or_library_is_pointed_out(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    command = ["stepscope", "run", "--fabric", "1gbit", "train.py"]
    run = write_run(tmp_path, run=run_metadata(command=command, backend="nccl"))
    fabric = write_calibration(tmp_path)
    remarks = made(capsys, "cost", "--run", run, "--fabric", fabric)["remarks"]
    assert remarks[-3:-1] == [
        f"{fabric} was measured on no emulated fabric and {run} recorded on one: two networks.",
        f"{fabric} was measured with gloo and {run} recorded with nccl.",
    ]


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("run.json", None, "no run.json at {run}; `stepscope run` writes one into its run directory"),
        ("run.json", b"{}", "cannot read {run}/run.json as stepscope.run/1"),
        ("audit.json", b"{}", "cannot read {run}/audit.json: "),
        ("audit.json", None, "{run}: no traces in it"),
    ],
)
def test_a_directory_that_holds_no_whole_run_is_refused(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, file: str, content: bytes | None, message: str
) -> None:
    run = write_run(tmp_path)
    (run / file).unlink()
    if content is not None:
        (run / file).write_bytes(content)
    assert main(["cost", "--run", str(run)]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.splitlines()[-1].startswith(f"stepscope: error: {message.format(run=run)}")


def test_a_run_that_reduced_no_gradients_has_nothing_to_budget(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    run = write_run(tmp_path, audit(gradient=False))
    refused(capsys, f"the steps of {run} reduce no gradients of a known size", "cost", "--run", run)


def test_it_imports_neither_torch_nor_numpy(tmp_path: Path) -> None:
    arguments = ["cost", "--run", str(write_run(tmp_path)), "--fabric", str(write_calibration(tmp_path))]
    code = (
        "import contextlib, io, sys\n"
        "from stepscope.cli.main import main\n"
        f"with contextlib.redirect_stdout(io.StringIO()): main({arguments!r})\n"
        "print([name for name in ('torch', 'numpy', 'stepscope.trace') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.slow
def test_a_real_calibration_beside_a_real_run(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Two gloo ranks, calibrated and then recorded; without its audit.json the run is audited again, to the same figures."""
    command = (sys.executable, "-m", "stepscope")
    ranks = ("--nproc-per-node", "2")
    measure = ("-b", "64K", "-e", "4M", "--seconds-per-size", "0.3", "--collectives", "all_reduce")
    for arguments in (
        ("calibrate", *ranks, *measure),
        ("run", *ranks, "--out", "run", "gpt", "--preset", "1m"),
    ):
        subprocess.run([*command, *arguments], cwd=tmp_path, check=True, capture_output=True)
    cost = ("cost", "--run", tmp_path / "run", "--fabric", tmp_path / "fabric.json")
    budget = made(capsys, *cost)
    kept = json.loads((tmp_path / "run/audit.json").read_text("utf-8"))
    sizes = budget["comparison"]["sizes"]
    assert sum(row["count"] * row["size_bytes"] for row in sizes) == sum(
        one["bytes"] for one in kept["buckets"]
    )
    assert all(row["model_ms"] > 0 and not row["waiting_included"] for row in sizes)
    assert budget["comparison"]["label"] == kept["verdict"]["label"]
    (tmp_path / "run/audit.json").unlink()
    assert made(capsys, *cost)["comparison"] == budget["comparison"]
    assert not (tmp_path / "run/audit.json").exists()
