"""`stepscope calibrate` as users call it, on real ranks; on an emulated fabric where the machine allows one."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from fabrics import held_by, needs_namespaces, run_in, wait_until_gone
from stepscope.budget.measured import read_fabric
from stepscope.cli.main import main

SHORT = ("-b", "1K", "-e", "600K", "-f", "8", "-n", "3", "-w", "1", "--seconds-per-size", "5")
"""Three repetitions of each size, and none left out where the processors are busy with other tests."""
COMMAND = (sys.executable, "-m", "stepscope", "calibrate")


def calibrate(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *arguments], cwd=folder, capture_output=True, text=True, check=False, timeout=120
    )


def start(folder: Path) -> subprocess.Popen[str]:
    """A calibration on a fabric that takes long, once ranks run in it."""
    process = subprocess.Popen(
        [*COMMAND, "--fabric", "100mbit", "-b", "32M", "--seconds-per-size", "60"],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    end = time.monotonic() + 60
    while not inhabited(places(process.pid)) and time.monotonic() < end:
        time.sleep(0.05)
    return process


def places(pid: int) -> set[str]:
    """The namespaces that are the process's and not ours."""
    return held_by(pid) - held_by(os.getpid())


def inhabited(namespaces: set[str]) -> bool:
    """Whether torchrun and both ranks run in them."""
    running = [run_in(int(entry.name)) for entry in Path("/proc").glob("[0-9]*")]
    return sum(one in namespaces for one in running) >= 3


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--nproc-per-node", "1"], "one rank sends nothing"),
        (["-b", "2M", "-e", "1M"], "--min-bytes 2097152 is more than --max-bytes 1048576; exchange them"),
        (["-b", "4Q"], "'4Q' is no size from 4 bytes to 16G; write 4096, 64K or 256M"),
        (["--collectives", "all_reduce,gather"], "'gather' is none of all_reduce, reduce_scatter"),
        (["--step-factor", "1"], "'1' is no number from 1.05 to 1024"),
        (["--repeats", "0"], "'0' is no whole number from 1 to 10000"),
        (["--fabric", "1gb"], "--fabric '1gb' is no rate; write a number and a unit as tc does"),
        (["--fabric", "1gbit,1gbit"], "there is one node; add --nnodes 2"),
        (
            ["--fabric", "1gbit", "--nnodes", "1:4"],
            "--nnodes 1:4 with --fabric; a fabric is made for a fixed",
        ),
        (["--fabric", "1gbit", "--nproc-per-node", "auto"], "--nproc-per-node auto with --fabric"),
        (["--fabric", "1gbit", "--node-rank", "1"], "--node-rank is for nodes on several machines"),
        (["train.py"], "calibrate runs no script, and 'train.py' looks like one"),
        (["--out", "missing/fabric.json"], "there is no directory missing; create it first"),
    ],
)
def test_bad_input_is_one_line_that_says_what_to_do(
    arguments: list[str],
    complaint: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["calibrate", *arguments]) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    (line,) = shown.err.splitlines()
    assert line.startswith("stepscope: error: ")
    assert complaint in line
    assert list(tmp_path.iterdir()) == []


def test_an_existing_file_is_refused_before_anything_is_measured(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "fabric.json"
    out.write_text("mine", encoding="utf-8")
    assert main(["calibrate", "--out", str(out)]) == 2
    assert "exists; pass --force to replace it" in capsys.readouterr().err
    assert out.read_text("utf-8") == "mine"


@pytest.mark.slow
def test_without_a_fabric_two_ranks_measure_loopback_and_the_file_can_be_read_here(tmp_path: Path) -> None:
    done = calibrate(tmp_path, *SHORT, "--nproc-per-node", "2", "--collectives", "all_reduce,broadcast")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[-1] == "Wrote fabric.json"
    assert max(map(len, done.stdout.splitlines())) <= 80
    made = read_fabric(tmp_path / "fabric.json")
    assert (made.world_size, made.backend, made.emulated) == (2, "gloo", None)
    assert made.transport == "TCP, within one host"
    assert [(one.name, one.hops, one.volume) for one in made.collectives] == [
        ("all_reduce", 2, 1.0),
        ("broadcast", 1, 1.0),
    ]
    sizes = [point.bytes for point in made.collectives[0].points]
    assert sizes == [1024, 8192, 65_536, 524_288]
    for point in made.collectives[0].points:
        assert point.algbw_gb_per_s == pytest.approx(point.bytes / point.time_us / 1e3)
        assert point.busbw_gb_per_s == pytest.approx(point.algbw_gb_per_s)


@pytest.mark.slow
@needs_namespaces
def test_on_a_fabric_of_two_nodes_json_alone_is_on_standard_output(tmp_path: Path) -> None:
    shape = ("--fabric", "1gbit,200mbit", "--nnodes", "2", "--nproc-per-node", "2")
    done = calibrate(tmp_path, *shape, *SHORT, "--json", "-", "--out", "f.json")
    assert done.returncode == 0
    assert done.stderr.splitlines()[-1] == "Wrote f.json"
    made = json.loads(done.stdout)
    assert made == json.loads((tmp_path / "f.json").read_text("utf-8"))
    assert (made["schema"], made["world_size"]) == ("stepscope.fabric/1", 4)
    assert made["transport"] == "TCP, on an emulated fabric, interface eth0"
    assert made["emulated"] == {
        "kind": "emulated",
        "rate_bit_per_s": 1_000_000_000,
        "rate_inter_bit_per_s": 200_000_000,
        "nodes": 2,
        "ranks_per_node": 2,
        "mtu": 1500,
        "payload_share": 1448 / 1514,
    }
    assert [one["name"] for one in made["collectives"]] == [
        "all_reduce",
        "reduce_scatter",
        "all_gather",
        "broadcast",
    ]


@pytest.mark.slow
@needs_namespaces
def test_ctrl_c_ends_the_ranks_and_leaves_no_namespace(tmp_path: Path) -> None:
    process = start(tmp_path)
    made = places(process.pid)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    assert process.returncode == 128 + signal.SIGINT
    assert len(made) == 3
    assert wait_until_gone(made) == set()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
@needs_namespaces
def test_killed_it_leaves_no_namespace_and_the_next_start_works_at_its_rate(tmp_path: Path) -> None:
    process = start(tmp_path)
    made = places(process.pid)
    process.kill()
    process.communicate(timeout=60)
    assert len(made) == 3
    assert wait_until_gone(made) == set()
    again = calibrate(
        tmp_path,
        "--fabric",
        "80mbit",
        "-b",
        "1M",
        "-e",
        "1M",
        "-n",
        "3",
        "-w",
        "1",
        "--collectives",
        "all_reduce",
    )
    assert (again.returncode, again.stdout.splitlines()[-1]) == (0, "Wrote fabric.json")
    (point,) = read_fabric(tmp_path / "fabric.json").collectives[0].points
    assert point.busbw_gb_per_s <= 0.010 * 1448 / 1514 * 1.02


def test_the_help_shows_options_of_nccl_tests(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["calibrate", "--help"]) == 0
    shown = capsys.readouterr().out
    for option in ("-b, --min-bytes", "-e, --max-bytes", "-n, --repeats", "--fabric RATE[,RATE_INTER]"):
        assert option in shown.replace(" SIZE", "").replace(" N,", ",")
