"""`stepscope cost --fabric`: what is measured, what overrides it, and which files are refused."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from cost_command import inputs, made, printed, refused
from measured_runs import calibration, fit, write_calibration

JOB = ("cost", "--gpus", "2", "--params", "0.0075", "--bytes-per-param", "4", "--step-ms", "400")


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


def test_a_calibration_of_another_machine_is_refused(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    fabric = write_calibration(tmp_path, calibration("node7"))
    refused(capsys, f"{fabric} was measured on node7, not on ", *JOB, "--fabric", fabric)


def test_a_calibration_without_a_latency_is_refused_until_one_is_given(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    fabric = write_calibration(tmp_path, calibration(own=fit(alpha_us=0.0)))
    refused(capsys, f"{fabric} leaves no latency above 0", *JOB, "--fabric", fabric)
    assert inputs(made(capsys, *JOB, "--fabric", fabric, "--latency", "9"))["latency a hop"][
        "value"
    ] == pytest.approx(9)


def test_a_calibration_stands_for_the_link_and_for_nothing_else(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    refused(
        capsys,
        "the following arguments are required: --gpus, --params, --step-ms; --fabric and --run",
        *("cost", "--fabric", write_calibration(tmp_path)),
    )


def test_a_calibration_of_gpus_within_one_host_is_the_link_inside_it_for_as_many_ranks(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    on_gpus = msgspec.structs.replace(calibration(ranks=4), device="NVIDIA H200", backend="nccl")
    fabric = write_calibration(tmp_path, on_gpus)
    job = (*JOB[:1], *JOB[3:], "--fabric", fabric)
    within = made(capsys, *job, "--gpus", "4")["communication"]["fixes"]["intra_node"]
    assert within == {"refusal": "all ranks were calibrated within one host: this is the link inside it"}
    beyond = made(capsys, *job, "--gpus", "16")["communication"]["fixes"]["intra_node"]
    assert (beyond["available"], beyond["ranks_per_node"]) == (False, 8)
