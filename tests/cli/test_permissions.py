"""What may not be read or written is said in one line that names it, whichever command meets it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from exposed_trace import write_trace

_COMMANDS = """
import contextlib, io, json, sys
from stepscope.cli.main import main
said = []
for arguments in json.loads(sys.argv[1]):
    with contextlib.redirect_stderr(io.StringIO()) as err, contextlib.redirect_stdout(io.StringIO()):
        code = main(arguments)
    said.append((code, err.getvalue().splitlines()[-1]))
json.dump(said, sys.stdout)
"""

_WITHOUT = "-dac_override,-dac_read_search"
"""What lets root read everything."""


def said_by(commands: list[list[str]], folder: Path) -> list[tuple[int, str]]:
    """Exit codes and last lines on standard error of commands that run in one process, without root's rights."""
    prefix = []
    if os.getuid() == 0:
        if shutil.which("setpriv") is None:
            pytest.skip("there is no setpriv to give root's rights up with")
        prefix = ["setpriv", f"--inh-caps={_WITHOUT}", f"--bounding-set={_WITHOUT}"]
    command = [*prefix, sys.executable, "-c", _COMMANDS, json.dumps(commands)]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)
    return [(code, line) for code, line in json.loads(done.stdout)]


def test_a_folder_that_may_not_be_entered_is_named_by_every_command(tmp_path: Path) -> None:
    (tmp_path / "shut").mkdir()
    write_trace(tmp_path / "rank0.pt.trace.json")
    commands = [
        *(["audit", "shut"], ["predict", "shut"], ["second-opinion", "shut"], ["compare", "shut", "."]),
        *(["open", "shut"], ["open", "--tensorboard", "shut"], ["cost", "--run", "shut"]),
        *(
            ["audit", ".", "--baseline", "shut"],
            ["audit", ".", "--json", "shut/x"],
            ["audit", ".", "-o", "shut/x"],
        ),
    ]
    (tmp_path / "shut").chmod(0)
    for arguments, (code, line) in zip(commands, said_by(commands, tmp_path), strict=True):
        assert code == 2, arguments
        assert line.startswith("stepscope: error: "), arguments
        assert "shut" in line, arguments
        assert "Permission denied" in line, arguments
        assert "Errno" not in line, arguments


def test_an_audit_that_may_not_be_read_is_not_taken_for_something_else(tmp_path: Path) -> None:
    write_trace(tmp_path / "rank0.pt.trace.json")
    (tmp_path / "audit.json").write_text("{}")
    (tmp_path / "audit.json").chmod(0)
    line = "stepscope: error: audit.json: cannot be read: Permission denied"
    commands = [["open", "."], ["compare", ".", "."]]
    assert said_by(commands, tmp_path) == [(2, line)] * 2
