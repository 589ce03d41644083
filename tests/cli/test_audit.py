"""`stepscope audit` from outside: what it prints, where it writes, and how it ends."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from exposed_trace import write_trace
from stepscope.audit.result import Audit
from stepscope.cli.main import BROKEN_PIPE, main


@pytest.fixture
def exposed(tmp_path: Path) -> Path:
    """A folder with two ranks' traces whose all-reduce is exposed for 300 of 1000 us."""
    for rank in (0, 1):
        write_trace(tmp_path / "traces" / f"rank{rank}.json", rank=rank)
    return tmp_path / "traces"


@pytest.fixture
def hidden(tmp_path: Path) -> Path:
    return write_trace(tmp_path / "hidden" / "rank0.json", exposed_us=0.0)


def stepscope(*arguments: str | Path, **kwargs: Any) -> subprocess.CompletedProcess[str]:
    """The command in a process of its own."""
    command = [sys.executable, "-m", "stepscope", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, **kwargs)


def test_the_verdict_comes_first(exposed: Path) -> None:
    done = stepscope("audit", exposed)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[:2] == [
        "comm-bound (serialised): communication costs 30.0 % of the step (median; 95 %",
        "interval 30.0 to 30.0 %); 0.0 % of gradient communication hides behind backward",
    ]


def test_hidden_communication_is_not_comm_bound(hidden: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["audit", str(hidden)]) == 0
    assert capsys.readouterr().out.startswith(
        "comm-sensitive (hidden now): communication costs 0.0 % of the step"
    )


def test_json_on_standard_output_is_the_audit_and_nothing_else(
    exposed: Path, validated: Callable[[Audit], dict[str, Any]]
) -> None:
    done = stepscope("audit", exposed, "--json", "-")
    audit = msgspec.json.decode(done.stdout, type=Audit)
    validated(audit)
    assert audit.verdict.label == "comm-bound"
    assert [rank.rank for rank in audit.ranks] == [0, 1]
    assert done.stderr == ""


def test_the_same_traces_give_the_same_bytes(exposed: Path) -> None:
    first, second = (stepscope("audit", exposed, "--json", "-").stdout for _ in range(2))
    assert first == second


def test_files_are_written_and_named_last(
    exposed: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    report, data = tmp_path / "report.txt", tmp_path / "audit.json"
    assert main(["audit", str(exposed), "-o", str(report), "--json", str(data)]) == 0
    assert capsys.readouterr().out == f"Wrote {report}\nWrote {data}\n"
    assert report.read_text("utf-8").startswith("comm-bound")
    assert json.loads(data.read_text("utf-8"))["schema"] == "stepscope.audit/1"
    assert sorted(file.name for file in tmp_path.iterdir()) == ["audit.json", "report.txt", "traces"]


def test_what_was_written_is_named_on_standard_error_when_data_is_on_standard_output(
    exposed: Path, tmp_path: Path
) -> None:
    report = tmp_path / "report.txt"
    done = stepscope("audit", exposed, "-o", report, "--json", "-")
    assert done.stdout.startswith("{") and done.stdout.endswith("}\n")
    assert done.stderr == f"Wrote {report}\n"


def test_an_existing_file_is_kept_without_force(
    exposed: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    report = tmp_path / "report.txt"
    report.write_text("mine")
    assert main(["audit", str(exposed), "-o", str(report)]) == 2
    message = f"stepscope: error: {report} exists; pass --force to replace it, or name another file\n"
    assert capsys.readouterr().err == message
    assert report.read_text() == "mine"
    assert main(["audit", str(exposed), "-o", str(report), "--force"]) == 0
    assert report.read_text("utf-8").startswith("comm-bound")


@pytest.mark.parametrize(
    ("label", "code", "message"),
    [
        ("comm-bound", 1, "stepscope: error: the verdict is comm-bound, one of --fail-on comm-bound\n"),
        ("inconclusive, no communication", 0, ""),
    ],
)
def test_fail_on_is_a_gate_that_closes_after_the_report(
    exposed: Path, label: str, code: int, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["audit", str(exposed), "--fail-on", label]) == code
    shown = capsys.readouterr()
    assert shown.err == message
    assert shown.out.startswith("comm-bound")


def test_thresholds_change_the_label_and_are_reported(
    exposed: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    limits = ["--cost-share-threshold", "0.4", "--comm-share-threshold", "0.5"]
    assert main(["audit", str(exposed), *limits]) == 0
    text = capsys.readouterr().out
    assert text.startswith("compute-bound (little communication)")
    assert "  thresholds: cost 40.0 % of the step; communication 50.0 % of the step less its\n" in text


MISTAKES = {
    "nothing": ([], "the following arguments are required: PATH (see `stepscope audit --help`)"),
    "label": (
        ["x", "--fail-on", "slow"],
        "argument --fail-on: no label 'slow'; there are comm-bound, comm-sensitive, compute-bound, inconclusive,"
        " no-communication, host-bound (see `stepscope audit --help`)",
    ),
    "share": (
        ["x", "--cost-share-threshold", "10"],
        "argument --cost-share-threshold: '10' is no share between 0 and 1; write 0.1 for 10 %"
        " (see `stepscope audit --help`)",
    ),
    "option": (
        ["x", "--jsn", "-"],
        "unrecognized arguments: --jsn -; did you mean --json? (see `stepscope audit --help`)",
    ),
    "report": (
        ["x", "--report", "pdf"],
        "no report 'pdf'; there are html, json, markdown, perfetto, png, svg, terminal",
    ),
    "folder": (
        ["x", "-o", "no/such/report.txt"],
        "cannot write no/such/report.txt: there is no directory no/such; create it first",
    ),
    "directory": (["x", "-o", "."], "cannot write .: it is a directory; name a file in it"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_one_line_with_exit_code_2(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    arguments, message = MISTAKES[name]
    assert main(["audit", *arguments]) == 2
    assert capsys.readouterr().err == f"stepscope: error: {message}\n"


def test_a_missing_path_is_one_line_that_names_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["audit", "no/such/trace.json"]) == 2
    err = capsys.readouterr().err
    assert err.startswith("stepscope: error: ") and "no/such/trace.json" in err and err.count("\n") == 1


def test_a_run_directory_gets_its_audit_once(exposed: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = {"schema": "stepscope.run/1", "command": ["train.py"]}
    (exposed / "run.json").write_text(json.dumps(run))
    kept = exposed / "audit.json"
    assert main(["audit", str(exposed)]) == 0
    assert capsys.readouterr().out.endswith(f"\nWrote {kept}\n")
    first = json.loads(kept.read_text("utf-8"))
    assert first["run"] == run
    assert main(["audit", str(exposed), "--comm-share-threshold", "0.5"]) == 0
    assert "Wrote" not in capsys.readouterr().out
    assert json.loads(kept.read_text("utf-8")) == first
    assert main(["audit", str(exposed), "--comm-share-threshold", "0.5", "--force"]) == 0
    assert json.loads(kept.read_text("utf-8"))["verdict"]["thresholds"]["comm_share"] == 0.5


def test_of_a_run_directory_what_its_run_file_names_is_audited(
    exposed: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_trace(exposed / "rank2.json", rank=2)  # of an earlier run with more ranks
    ranks = [{"rank": rank, "trace": f"rank{rank}.json.gz"} for rank in (0, 1)]  # unzipped since
    (exposed / "run.json").write_text(json.dumps({"ranks": ranks}))
    assert main(["audit", str(exposed), "--json", "-"]) == 0
    found = msgspec.json.decode(capsys.readouterr().out, type=Audit)
    assert [rank.rank for rank in found.ranks] == [0, 1]
    (stray,) = (warning for warning in found.warnings if warning.code == "not-of-the-run")
    assert stray.source == str(exposed / "rank2.json")


def test_renamed_traces_of_a_run_directory_are_still_the_runs(
    exposed: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (exposed / "run.json").write_text(
        json.dumps({"ranks": [{"rank": 0, "trace": "rank0.1.pt.trace.json.gz"}]})
    )
    assert main(["audit", str(exposed), "--json", "-"]) == 0
    assert len(msgspec.json.decode(capsys.readouterr().out, type=Audit).ranks) == 2


def test_a_broken_run_file_is_named(exposed: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (exposed / "run.json").write_text('{"schema": ')
    assert main(["audit", str(exposed)]) == 2
    err = capsys.readouterr().err
    assert err.startswith(f"stepscope: error: cannot read {exposed / 'run.json'}: ")
    assert err.endswith("; remove it to audit the traces alone\n")


def test_piped_and_uncoloured_output_holds_no_escape_codes(exposed: Path) -> None:
    assert "\x1b" not in stepscope("audit", exposed, env={**os.environ, "TERM": "xterm-256color"}).stdout


def test_a_reader_that_leaves_early_is_no_error(exposed: Path) -> None:
    command = [sys.executable, "-m", "stepscope", "audit", str(exposed)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(60) == BROKEN_PIPE


def test_of_several_files_one_that_is_no_trace_is_left_out_with_a_warning(
    exposed: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (exposed / "rank2.pt.trace.json").write_bytes(b"")
    assert main(["audit", str(exposed), "--json", "-"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [rank["rank"] for rank in found["ranks"]] == [0, 1]
    (warning,) = (w for w in found["warnings"] if w["code"] == "unreadable-file")
    assert "the file is empty" in warning["message"]
    assert warning["source"].endswith("rank2.pt.trace.json")


@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&- >&- 2>&-"])
def test_streams_that_the_caller_closed_are_no_error_and_none_takes_the_others_text(
    closed: str, exposed: Path
) -> None:
    command = (
        f"'{sys.executable}' -m stepscope audit '{exposed}' --json '{exposed.parent / 'x.json'}' {closed}"
    )
    done = subprocess.run(command, shell=True, capture_output=True, text=True, check=False)
    assert done.returncode == 0
    assert done.stdout.endswith("x.json\n") == (closed == "2>&-")
    assert done.stderr == ""
    assert json.loads((exposed.parent / "x.json").read_text())["schema"] == "stepscope.audit/1"


def test_a_command_that_is_terminated_while_it_writes_leaves_no_half_file(tmp_path: Path) -> None:
    """A report that stays in the middle of writing until somebody ends it."""
    code = (
        "import os, signal, sys, time; from stepscope.cli import main, output\n"
        "def stuck(stream):\n"
        "    stream.write('half'); os.kill(os.getpid(), signal.SIGTERM); time.sleep(60)\n"
        "main.main = lambda arguments: output.write_file(arguments[0], stuck)\n"
        "main.entry_point()"
    )
    target = tmp_path / "written.json"
    done = subprocess.run(
        [sys.executable, "-c", code, str(target)], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (128 + signal.SIGTERM, "")
    assert [path.name for path in tmp_path.iterdir() if "written" in path.name] == []
