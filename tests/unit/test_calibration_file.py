"""fabric.json: what is read, what is refused, and the report made of it."""

from __future__ import annotations

import io
import socket
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from stepscope.budget.calibration import Sample, calibrate, summary
from stepscope.budget.measured import SCHEMA, Calibration, read_fabric
from stepscope.errors import InputError
from stepscope_reports.calibrate import render


def calibration(host: str) -> Calibration:
    """Two ranks, 50 us a hop, 0.1 GB/s, three sizes; the smallest in a repetition of 100."""
    sizes = {1024: 100, 1_048_576: 1, 104_857_600: 1}
    made = [
        Sample("all_reduce", size, operations, [100e-6 + size / 0.1e9] * 3)
        for size, operations in sizes.items()
    ]
    collectives = [calibrate("all_reduce", 2, made, None)]
    return Calibration(
        date="2026-11-30T05:00:00+00:00",
        hosts=[host],
        world_size=2,
        backend="gloo",
        device="cpu",
        transport="TCP, on an emulated fabric, interface eth0",
        emulated={
            "rate_bit_per_s": 1_000_000_000,
            "rate_inter_bit_per_s": None,
            "nodes": 1,
            "ranks_per_node": 2,
            "payload_share": 1448 / 1514,
        },
        collectives=collectives,
        command=["stepscope", "calibrate"],
        versions={},
        environment={},
        **summary(collectives),
    )


def written(folder: Path, made: Calibration) -> Path:
    path = folder / "fabric.json"
    path.write_bytes(msgspec.json.encode(made))
    return path


def test_a_file_measured_here_is_read_as_it_was_written(tmp_path: Path) -> None:
    made = calibration(socket.gethostname())
    read = read_fabric(written(tmp_path, made))
    assert read == made
    assert read.schema == SCHEMA == "stepscope.fabric/1"
    assert read.alpha_us == pytest.approx(50.0)
    assert read.bandwidth_gb_per_s == pytest.approx(0.1)


def test_a_file_of_another_machine_is_refused_with_both_names(tmp_path: Path) -> None:
    path = written(tmp_path, calibration("node7"))
    with pytest.raises(
        InputError, match=r"was measured on node7, not on node8; run `stepscope calibrate` here"
    ):
        read_fabric(path, host="node8")
    assert read_fabric(path, host="node7").hosts == ["node7"]


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ('{"schema": "stepscope.audit/1"}', "is no stepscope.fabric/1 file but stepscope.audit/1"),
        ("{}", "is no stepscope.fabric/1 file; make one"),
        ("[1]", "is damaged"),
        ('{"schema": "stepscope.fabric/1"', "is damaged"),
        ('{"schema": "stepscope.fabric/1"}', "missing required field"),
    ],
)
def test_what_is_no_calibration_is_refused_in_one_line(tmp_path: Path, content: str, complaint: str) -> None:
    path = tmp_path / "fabric.json"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(InputError, match=complaint) as caught:
        read_fabric(path)
    assert "\n" not in str(caught.value)


def test_a_file_that_is_not_there_comes_with_the_command_that_makes_it(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"No such file or directory; `stepscope calibrate --out"):
        read_fabric(tmp_path / "fabric.json")


def test_the_reader_imports_neither_numpy_nor_torch() -> None:
    code = "import sys, stepscope.budget.measured; print(sorted({'numpy', 'torch'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


REPORT = """\
2 ranks of gloo on node7: TCP, on an emulated fabric, interface eth0
links of 1000 Mbit/s, that is 0.125 GB/s, of which 0.1196 GB/s carry data
(TCP/IP and Ethernet headers take 4.4 %)

alpha 50 us (50 to 50), B 0.1 GB/s (0.1 to 0.1)  (all_reduce)

all_reduce: time = 2 alpha + 1 S/B
  alpha 50 us (50 to 50), B 0.1 GB/s (0.1 to 0.1)
  within 10 % from 1 KiB to 100 MiB
   size  time us     from       to   algbw   busbw   fit us  fit off
  1 KiB    110.2    110.2    110.2  0.0093  0.0093    110.2   {zero0}
  1 MiB    10586    10586    10586  0.0991  0.0991    10586   {zero1}
100 MiB  1048676  1048676  1048676  0.1000  0.1000  1048676   {zero2}
"""


def test_the_report_shows_alpha_and_b_and_a_row_for_each_size_in_80_columns() -> None:
    stream = io.StringIO()
    render(calibration("node7"), stream)
    shown = stream.getvalue().replace("-0.0 %", "+0.0 %")
    assert shown == REPORT.format(zero0="+0.0 %", zero1="+0.0 %", zero2="+0.0 %")
    assert max(map(len, shown.splitlines())) <= 80


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"alpha_us": 19_523.0}, "alpha, one hop, is 19523 us, but a whole all_reduce took 110 us"),
        (
            {"bandwidth_gb_per_s_interval": (1.46, 10.35)},
            "the times leave B anywhere from 1.46 to 10.3 GB/s",
        ),
        ({"valid_bytes": None}, "the fit holds nowhere within 10 %"),
    ],
)
def test_a_fit_to_predict_nothing_with_is_said_to_be_none_before_its_figures_and_in_older_files(
    tmp_path: Path, changes: dict[str, object], why: str
) -> None:
    made = calibration(socket.gethostname())
    (one,) = made.collectives
    assert one.fit is not None
    older = replace(made, collectives=[replace(one, fit=replace(one.fit, **changes))], unusable=None)
    read = read_fabric(written(tmp_path, older))
    assert read.unusable == why
    stream = io.StringIO()
    render(read, stream)
    shown = " ".join(stream.getvalue().split())
    assert shown.startswith(f"This calibration is not usable: {why}. Repeat it on a quiet machine")
