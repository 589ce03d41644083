"""The frame of the command line."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from stepscope import __version__
from stepscope.cli.main import COMMANDS, main
from stepscope.cli.reports import BINARY_REPORTS, TEXT_REPORTS
from stepscope.plugins import installed


def test_without_a_command_the_help_is_shown_and_the_exit_code_is_2(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main([]) == 2
    assert capsys.readouterr().err.startswith("usage: stepscope COMMAND [options]\n")


@pytest.mark.parametrize("arguments", [["--help"], ["audit", "--help"]])
def test_help_ends_with_0_and_fits_80_columns(
    arguments: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 0
    assert max(map(len, capsys.readouterr().out.splitlines())) <= 80


def test_help_names_every_command_with_the_first_line_of_its_docstring(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit):
        main(["--help"])
    assert "\n  audit          Audit run directories or any Kineto traces\n" in capsys.readouterr().out


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--version"])
    assert capsys.readouterr().out == f"stepscope {__version__}\n"


@pytest.mark.parametrize(
    ("name", "hint"),
    [("adit", "did you mean `stepscope audit`?"), ("frobnicate", f"there are {', '.join(COMMANDS)}")],
)
def test_an_unknown_command_gets_a_hint(name: str, hint: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([name]) == 2
    message = f"stepscope: error: no command '{name}'; {hint} (see `stepscope --help`)\n"
    assert capsys.readouterr().err == message


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["audit", "x", "--jsn", "-"], "--jsn -; did you mean --json?"),
        (["run", "--setps", "3", "gpt"], "--setps; did you mean --steps?"),
        (["run", "--nproc-per-nod", "2", "--wamrup=3", "gpt"], "--wamrup=3; did you mean --warmup?"),
        (["sweep", "--repaet", "3", "--bucket-cap-mb", "1,2", "gpt"], "--repaet; did you mean --repeat?"),
        (["calibrate", "--otu", "x"], "--otu; did you mean --out?"),
        (["cost", "--xyzzy"], "--xyzzy"),
    ],
)
def test_an_unknown_option_gets_the_closest_one(
    words: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == 2
    expected = f"stepscope: error: unrecognized arguments: {told} (see `stepscope {words[0]} --help`)\n"
    assert capsys.readouterr().err == expected


def test_the_help_of_audit_names_every_report(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["audit", "--help"])
    told = " ".join(capsys.readouterr().out.split())
    assert all(name in told for group in (TEXT_REPORTS, BINARY_REPORTS) for name in installed(group))


def test_the_installed_script_and_the_module_are_one() -> None:
    script = [str(Path(sys.executable).with_name("stepscope")), "--version"]
    module = [sys.executable, "-m", "stepscope", "--version"]
    first, second = (
        subprocess.run(it, capture_output=True, text=True, check=True) for it in (script, module)
    )
    assert first.stdout == second.stdout == f"stepscope {__version__}\n"
