"""`stepscope cost` from outside: what it prints, where its inputs came from, what it writes and refuses."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from stepscope.cli.main import main

COMMAND = "cost --gpus 32 --bw 25 --latency 20 --params 1.3 --step-ms 400 --buckets 1,8,16,25,100"
WORKED = COMMAND.split()

BUCKETS = """\
  bucket MiB  count  time ms  latency %  overlap?  bandwidth-bound?  exposed ms
           1  2,480   3276.7       93.9       yes                no      3010.1
           8    310    585.9       65.6       yes                no       320.1
          16    155    393.7       48.8       yes               yes       128.8
          25    100    325.5       38.1       yes               yes        61.5
         100     25    232.5       13.3       yes               yes         9.3
"""

RING = """\
  message S            2.6 GB  2,480 MiB; GB is 1e9 bytes, MiB is 2**20
  latency term        1.24 ms  as one message
  bandwidth term     201.5 ms  162 times the latency term
  total              202.7 ms  50.7 % of 400.0 ms of compute
  efficiency           66.4 %  fully exposed: nothing overlaps
                      100.0 %  ceiling: perfect overlap
  backward           266.7 ms  the window, of a micro-batch
    to fit in it     202.7 ms  fits
    slack            63.93 ms  margin 24 %
  crossover S*      15.26 MiB  16 MB: below it latency costs more
"""

SCALING = """\
  ranks  latency  bandwidth  total ms  of step  S* MiB  in 25 MiB  batch
     32     1.24      201.5     202.7   50.7 %   15.26      325.5     1x
    256    10.20      207.2     217.4   54.3 %  122.07    1,227.2     8x
  256 ranks: bandwidth +2.8 %, latency 8.2x, S* and global batch 8x; buckets of
  354 to 413 MiB, for want of a good size.
"""


def printed(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main([*WORKED, *arguments]) == 0
    return capsys.readouterr().out


def test_the_verdict_comes_first_and_the_bare_rule_apart_from_it(capsys: pytest.CaptureFixture[str]) -> None:
    verdict, rule, *_ = printed(capsys).split("\n\n")
    assert verdict.startswith(
        "communication-sensitive, by the model. 202.7 ms of gradient communication, as\none message, fit in"
    )
    assert rule == (
        "The bare rule, which is no verdict\n"
        "  communication-bound: 50.7 % of the step, as one message, is over 50 %. It asks\n"
        "  neither whether communication fits behind backward nor whether it overlaps."
    )


@pytest.mark.parametrize("table", [RING, BUCKETS])
def test_the_tables_of_the_worked_example(capsys: pytest.CaptureFixture[str], table: str) -> None:
    assert table in printed(capsys)


def test_the_scaling_table_says_what_grows(capsys: pytest.CaptureFixture[str]) -> None:
    assert SCALING in printed(capsys, "--scale-to", "256")


def test_the_fixes_have_their_figures(capsys: pytest.CaptureFixture[str]) -> None:
    text = " ".join(printed(capsys).split())
    assert "202.7 ms are 12.7 % of 1,600 ms of compute, 88.8 % efficient even fully exposed" in text
    assert (
        "Stage 2 keeps 2.95 GiB instead of 19.4 (parameters 2.42, the rest 0.53); the wire volume is unchanged"
        in text
    )
    assert (
        "an all-reduce would take 17.10 ms (4.3 % of the step), but 32 ranks do not fit in a node of 8 (assumed"
        in text
    )
    assert (
        "all-reduce of 1/8 of the message across 4 nodes, 19.62 ms; together 34.86 ms (8.7 % of the step)"
        in text
    )
    assert "Take 64 to 100 MiB (39 to 25 buckets)." in text


def test_assumed_inputs_are_told_from_given_ones(capsys: pytest.CaptureFixture[str]) -> None:
    lines = printed(capsys, "--zero", "0", "--gpus-per-node", "8").splitlines()
    origin = {
        line.split("--")[1].split()[0]: line.split("  --")[0].strip() for line in lines if "  --" in line
    }
    assert origin == {
        **dict.fromkeys(("gpus", "params", "bw", "latency", "step-ms", "buckets"), "command line"),
        **dict.fromkeys(("zero", "gpus-per-node"), "command line"),
        **dict.fromkeys(("bytes-per-param", "backward-share", "accumulate"), "assumed"),
        **dict.fromkeys(("intra-bw", "intra-latency"), "assumed"),
    }


def test_the_limits_name_the_commands_that_measure(capsys: pytest.CaptureFixture[str]) -> None:
    limits = " ".join(printed(capsys).split("\n\nLimits\n")[1].split())
    assert "not a measurement" in limits
    assert "`stepscope calibrate`" in limits
    assert "`stepscope run`" in limits
    assert "the ring overstates the cost" in limits


@pytest.mark.parametrize(
    "arguments",
    [
        "--scale-to 64,128,256 --batch 4 --critical-batch 512",
        "--gpus-per-node 8 --zero 2 --accumulate 4",
        "--zero 3 --buckets 0.5,5000,12000",
        "--gpus 7 --gpus-per-node 8",
        "--gpus 1024 --scale-to 4096,16384",
    ],
)
def test_80_columns_are_enough(capsys: pytest.CaptureFixture[str], arguments: str) -> None:
    assert [line for line in printed(capsys, *arguments.split()).splitlines() if len(line) > 80] == []


def test_one_rank_is_a_case_of_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    text = printed(capsys, "--gpus", "1")
    assert text.startswith("no communication, by the model. One rank alone reduces nothing")
    assert "Buckets" not in text
    assert "19.37" in text


def test_a_bucket_larger_than_the_model_is_said_to_be_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert "3,000 MiB holds the whole model: one bucket, which can't overlap." in printed(
        capsys, "--buckets", "25,3000"
    )


def test_a_batch_past_the_critical_one_is_said_to_be(capsys: pytest.CaptureFixture[str]) -> None:
    text = " ".join(printed(capsys, "--scale-to", "256", "--batch", "4", "--critical-batch", "512").split())
    assert (
        "On 256 ranks the global batch is 2 times the critical one, past it: 8 times the ranks need 0.3 times the optimizer steps"
        in text
    )


def test_json_on_standard_output_is_all_there_is(capsys: pytest.CaptureFixture[str]) -> None:
    made = json.loads(printed(capsys, "--json", "-", "--scale-to", "256"))
    assert made["schema"] == "stepscope.cost/1"
    assert made["verdict"]["label"] == "communication-sensitive"
    assert made["communication"]["ring"]["share"] == pytest.approx(0.50685)
    assert made["scaling"][1]["total_ms"] == pytest.approx(217.3875)
    assert {row["option"]: row["origin"] for row in made["inputs"] if "option" in row}["--zero"] == "assumed"


def test_a_json_file_is_written_once_and_replaced_with_force(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = tmp_path / "cost.json"
    assert printed(capsys, "--json", str(file)).splitlines()[-1] == f"Wrote {file}"
    first = file.read_text("utf-8")
    assert main([*WORKED, "--json", str(file)]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert (
        captured.err == f"stepscope: error: {file} exists; pass --force to replace it, or name another file\n"
    )
    printed(capsys, "--json", str(file), "--force")
    assert file.read_text("utf-8") == first


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("--gpus 0", "argument --gpus: '0' is no whole number from 1"),
        ("--gpus -4", "argument --gpus: '-4' is no whole number from 1"),
        ("--gpus 2.5", "argument --gpus: '2.5' is no whole number from 1"),
        ("--bw nan", "argument --bw: 'nan' is no number above 0"),
        ("--bw inf", "argument --bw: 'inf' is no number above 0"),
        ("--latency 0", "argument --latency: '0' is no number above 0"),
        ("--params -1", "argument --params: '-1' is no number above 0"),
        ("--step-ms 1e300", "argument --step-ms: '1e300' is no number above 0"),
        ("--buckets 25,0", "argument --buckets: '0' is no number above 0"),
        ("--buckets 1,,2", "argument --buckets: '' is no number above 0"),
        ("--zero 4", "argument --zero: '4' is no ZeRO stage"),
        ("--backward-share 1", "argument --backward-share: '1' is no share"),
        ("--scale-to 64,1", "--scale-to needs 2 ranks or more"),
        ("--gpus-per-node 5", "5 ranks a node do not divide 32 ranks"),
        ("--critical-batch 0", "argument --critical-batch: '0' is no number above 0"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(
    capsys: pytest.CaptureFixture[str], arguments: str, message: str
) -> None:
    assert main([*WORKED, *arguments.split()]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith(f"stepscope: error: {message}")
    assert captured.err.count("\n") == 1


def test_what_nobody_can_assume_has_to_be_given(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cost", "--gpus", "8"]) == 2
    assert (
        "the following arguments are required: --bw, --latency, --params, --step-ms"
        in capsys.readouterr().err
    )


def test_it_imports_neither_torch_nor_numpy_nor_what_reads_traces() -> None:
    code = (
        "import contextlib, io, sys\n"
        "from stepscope.cli.main import main\n"
        f"with contextlib.redirect_stdout(io.StringIO()): main({WORKED!r})\n"
        "names = ('torch', 'numpy', 'msgspec', 'stepscope.trace', 'stepscope.audit', 'stepscope.capture')\n"
        "print([name for name in names if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_with_accumulation_what_is_of_a_micro_batch_and_what_of_the_step_is_told_apart(
    capsys: pytest.CaptureFixture[str],
) -> None:
    out = printed(capsys, "--zero", "3", "--accumulate", "4")
    verdict = " ".join(out.split("\n\n")[0].split())
    assert (
        "202.7 ms of gradient communication, as one message, fit in 266.7 ms of backward of a micro-batch"
        in verdict
    )
    assert "moves parameters outside of backward for another 405.5 ms a step, of 4 micro-batches." in verdict
    assert "    not in it        405.5 ms  parameters, in the rest of the whole step\n" in out
