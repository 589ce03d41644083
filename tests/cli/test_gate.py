"""`--fail-on`, `--baseline` and annotations: exit codes, and what whoever runs the job is told."""

from __future__ import annotations

import io
import os
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

import sample_audits
import sample_audits as samples
from exposed_trace import write_trace
from stepscope.cli.main import main
from stepscope_reports import github

Audited = Callable[..., int]


@pytest.fixture(autouse=True)
def outside_github(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GITHUB_ACTIONS", raising=False)


@pytest.fixture
def baseline(tmp_path: Path) -> Path:
    """The audit of two ranks with half of each all-reduce hidden."""
    file = tmp_path / "baseline.json"
    assert main(["audit", *traces(tmp_path / "before", 150.0), "--json", str(file)]) == 0
    return file


def traces(folder: Path, exposed_us: float) -> list[str]:
    return [
        str(write_trace(folder / f"rank{rank}.json", rank=rank, exposed_us=exposed_us)) for rank in (0, 1)
    ]


def test_what_is_no_worse_passes_and_says_so_for_each_figure(
    baseline: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    capsys.readouterr()
    assert main(["audit", *traces(tmp_path / "after", 150.0), "--baseline", str(baseline)]) == 0
    lines = capsys.readouterr().err.splitlines()
    assert [line.split(":")[2].strip().removesuffix(" (median of steps)") for line in lines] == [
        "cost of communication",
        "exposed gradient communication",
        "overlap with backward",
    ]
    assert all(line.endswith(": no difference") for line in lines)


def test_what_got_worse_exits_with_1_and_the_reason_after_the_report(
    baseline: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    capsys.readouterr()
    assert main(["audit", *traces(tmp_path / "after", 300.0), "--baseline", str(baseline)]) == 1
    out, err = capsys.readouterr()
    assert out.startswith("comm-bound")
    assert (
        "stepscope: error: baseline: cost of communication (median of steps): 0.0 % became 30.0 %, +30.0 points"
        in err
    )
    assert "overlap with backward (median of steps): 50.0 % became 0.0 %, -50.0 points" in err
    assert err.count("worse by more than the tolerance of 5 points") == 3


def test_a_wide_tolerance_lets_it_pass(baseline: Path, tmp_path: Path) -> None:
    after = traces(tmp_path / "after", 300.0)
    assert main(["audit", *after, "--baseline", str(baseline), "--tolerance", "60%"]) == 0


def test_a_failing_label_and_a_failing_baseline_are_both_told(
    baseline: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = [*traces(tmp_path / "after", 300.0), "--baseline", str(baseline), "--fail-on", "comm-bound"]
    assert main(["audit", *arguments]) == 1
    assert (
        "error: the verdict is comm-bound, one of --fail-on comm-bound; baseline: " in capsys.readouterr().err
    )


def test_a_run_directory_is_a_baseline(baseline: Path, tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    baseline.rename(tmp_path / "run" / "audit.json")
    assert main(["audit", *traces(tmp_path / "after", 150.0), "--baseline", str(tmp_path / "run")]) == 0


MAKE_ONE = "make one with `stepscope audit PATH --json FILE`"


@pytest.mark.parametrize("command", ["audit", "run"])
@pytest.mark.parametrize(
    ("options", "line"),
    [
        (["--baseline", "gone"], f"--baseline gone: no audit.json there; {MAKE_ONE}"),
        (["--baseline", "empty.json"], f"--baseline empty.json: no audit in it; {MAKE_ONE}"),
        (
            ["--baseline", "run.json"],
            "run.json is no audit of stepscope.audit/1 but of stepscope.run/1; name an audit.json or a run directory",
        ),
        (
            ["--baseline", "nothing.json"],
            "--baseline nothing.json has no step that counts, so nothing can be held against it; make one of a run that has",
        ),
        (
            ["--tolerance", "5"],
            "argument --tolerance: '5' is no percentage below 100; write 5% for 5 % (see `stepscope {} --help`)",
        ),
        (["--annotate", "gitlab"], "no annotations 'gitlab'; there are github, none"),
        (
            ["--fail-on", "slow"],
            "argument --fail-on: no label 'slow'; there are comm-bound, comm-sensitive, compute-bound, inconclusive, "
            "no-communication, host-bound (see `stepscope {} --help`)",
        ),
    ],
)
def test_a_gate_that_can_not_be_is_refused_before_the_work(
    command: str,
    options: list[str],
    line: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("empty.json").write_text("{}", "utf-8")
    nothing = msgspec.structs.replace(sample_audits.inconclusive(), ranks=[])
    Path("nothing.json").write_bytes(msgspec.json.encode(nothing))
    Path("run.json").write_text('{"schema": "stepscope.run/1"}', "utf-8")
    assert main([command, *options, "gpt"]) == 2
    assert capsys.readouterr() == ("", f"stepscope: error: {line.format(command)}\n")


def test_annotations_come_by_themselves_in_github_actions_and_leave_standard_output_alone(
    baseline: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    capsys.readouterr()
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    after = traces(tmp_path / "after", 300.0)
    assert main(["audit", *after, "--baseline", str(baseline), "--json", "-"]) == 1
    out, err = capsys.readouterr()
    assert out.startswith("{")
    commands = [line for line in err.splitlines() if line.startswith("::")]
    assert [line.split()[0] for line in commands[:3]] == ["::error"] * 3
    assert commands[0].startswith(
        "::error title=stepscope::baseline: cost of communication (median of steps): 0.0 %25 became 30.0 %25"
    )
    assert commands[-1].startswith(
        "::notice title=stepscope::comm-bound (serialised): communication costs 30.0 %25"
    )


def test_annotations_can_be_had_anywhere_and_turned_off_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    after = traces(tmp_path / "after", 300.0)
    assert main(["audit", *after, "--annotate", "github"]) == 0
    assert "::notice title=stepscope::" in capsys.readouterr().err
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    assert main(["audit", *after, "--annotate", "none"]) == 0
    assert capsys.readouterr().err == ""


def test_nothing_in_a_message_or_title_can_begin_another_command() -> None:
    finding = replace(
        samples.finding(),
        cause="a,b:c\n::error::x",
        evidence=["100 % of\r\n::set-output name=x::y"],
        fix="none\x1b[31m",
    )
    stream = io.StringIO()
    github.render(replace(samples.comm_bound(), findings=[finding]), ["50 %\nlost"], ["odd"], stream)
    assert stream.getvalue().splitlines() == [
        "::error title=stepscope::50 %25%0Alost",
        "::warning title=stepscope::odd",
        "::warning title=stepscope%3A a%2Cb%3Ac %3A%3Aerror%3A%3Ax::100 %25 of%0A::set-output name=x::y%0Afix: none\ufffd[31m",
        "::notice title=stepscope::comm-bound (serialised): communication costs 15.0 %25 of the step (median; 95 %25 interval "
        "14.8 to 15.3 %25); 66.7 %25 of gradient communication hides behind backward",
    ]


def test_a_directory_in_which_no_step_was_recorded_is_taken_again(tmp_path: Path) -> None:
    from datetime import UTC, datetime

    from stepscope.capture.rundir import make_run_dir
    from stepscope.errors import InputError

    for name in ("run.json", "rank0.meta.json", ".rank1.part"):
        (tmp_path / name).write_text("{}", "utf-8")
        os.utime(tmp_path / name, (1, 1))
    make_run_dir(tmp_path, datetime.now(UTC), force=False, shared=False)
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "run.json").write_text("{}", "utf-8")
    (tmp_path / "rank0.1.pt.trace.json.gz").touch()
    with pytest.raises(InputError, match="is not empty; pass --force to replace a recording in it"):
        make_run_dir(tmp_path, datetime.now(UTC), force=False, shared=False)
