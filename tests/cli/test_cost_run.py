"""`stepscope cost --run`: what comes from a recorded run, and the model beside it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from cost_command import inputs, made, printed, refused
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


def test_a_run_and_a_calibration_of_the_same_other_machine_go_together(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    fabric = write_calibration(tmp_path, calibration("node7"))
    run = write_run(tmp_path, run=run_metadata(hosts=["node7"]))
    assert made(capsys, "cost", "--run", run, "--fabric", fabric)["comparison"]["label"] == "comm-bound"


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
        "communication-bound,",
        "by",
        "the",
    ]
    assert [line for line in text.splitlines() if len(line) > 80] == []


def test_verdict_and_bare_rule_take_the_buckets_that_the_table_takes(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """One message of both buckets would pay one latency and could start with the first gradient."""
    job = ("cost", "--run", write_run(tmp_path), "--fabric", write_calibration(tmp_path))
    budget = made(capsys, *job)
    ring, step = budget["communication"]["ring"], budget["comparison"]["step"]
    assert ring["total_ms"] == pytest.approx(2 * 2 * 0.05 + 300.0)
    assert ring["total_ms"] == pytest.approx(step["model_communication_ms"])
    assert ring["least_exposed_ms"] == pytest.approx(step["model_exposed_ms"])
    assert (ring["buckets"], ring["cost"]["latency_ms"]) == (2, pytest.approx(0.2))
    assert "300.2 ms of gradient communication, in 2 buckets, do not fit" in budget["verdict"]["reason"]
    assert "75.1 % of the step, in 2 buckets, is over 50 %" in " ".join(printed(capsys, *job).split())


def test_options_that_make_it_another_message_are_budgeted_as_one(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    job = ("cost", "--run", write_run(tmp_path), "--fabric", write_calibration(tmp_path))
    budget = made(capsys, *job, "--bytes-per-param", "2")
    assert "buckets" not in budget["communication"]["ring"]
    assert "150.1 ms of gradient communication, as one message, fit" in budget["verdict"]["reason"]


def test_a_calibration_that_will_not_do_is_said_before_everything_else(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_run(tmp_path)
    write_calibration(tmp_path, calibration(own=fit(bandwidth_gb_per_s_interval=(0.02, 0.3))))
    monkeypatch.chdir(tmp_path)
    job = ("cost", "--run", "recorded", "--fabric", "fabric.json")
    warning = "fabric.json is not usable: the times leave B anywhere from 0.02 to 0.3 GB/s. Repeat it"
    assert " ".join(printed(capsys, *job).split()).startswith(warning)
    assert made(capsys, *job)["warning"].startswith(warning)
    assert "warning" not in made(capsys, *job, "--bw", "0.1", "--latency", "50")


def test_no_link_inside_a_node_is_assumed_for_ranks_on_cpus_unless_it_is_described(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    job = ("cost", "--run", write_run(tmp_path), "--fabric", write_calibration(tmp_path))
    budget = made(capsys, *job)
    why = "the ranks are on CPUs, and no other link among them was measured"
    assert budget["communication"]["fixes"]["intra_node"] == {"refusal": why}
    assert budget["communication"]["fixes"]["hierarchical"] == {"refusal": why}
    refusals = {row.get("refusal") for row in budget["communication"]["beyond_ring"]["whole_message"]}
    assert refusals == {None, why}
    assert {"ranks a node", "bandwidth in a node", "latency in a node"} & set(inputs(budget)) == set()
    assert "300 GB/s" not in printed(capsys, *job)
    described = made(capsys, *job, "--gpus-per-node", "2")["communication"]["fixes"]["intra_node"]
    assert (described["available"], described["node_assumed"]) == (True, False)


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
        ("audit.json", b"{}", "{run}/audit.json is no audit of stepscope.audit/1"),
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
        "print([name for name in ('torch', 'numpy', 'stepscope.trace.reader') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
