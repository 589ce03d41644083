"""The rules of the house, so that none of them has to be remembered."""

from __future__ import annotations

import ast
import importlib
import re
import subprocess
import sys
from pathlib import Path

import pytest

from stepscope.cli.main import COMMANDS
from stepscope.schema.generate import SCHEMA_FILE, schema_text

CODE = ("profiler", "reports", "workloads", "benchmarks", "tests")
MOST_LINES_OF_A_MODULE = 400
MOST_LINES_OF_A_FUNCTION = 50


def modules(repository: Path) -> list[Path]:
    return [file for folder in CODE for file in sorted((repository / folder).rglob("*.py"))]


def test_no_module_is_longer_than_400_lines(repository: Path) -> None:
    long = {
        str(file.relative_to(repository)): count
        for file in modules(repository)
        if (count := len(file.read_text("utf-8").splitlines())) > MOST_LINES_OF_A_MODULE
    }
    assert long == {}


def test_no_function_is_longer_than_50_lines(repository: Path) -> None:
    long = {
        f"{file.relative_to(repository)}:{node.name}": length
        for file in modules(repository)
        for node in ast.walk(ast.parse(file.read_text("utf-8")))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (length := (node.end_lineno or 0) - node.lineno + 1) > MOST_LINES_OF_A_FUNCTION
    }
    assert long == {}


def python(code: str) -> str:
    """What a fresh interpreter prints for the code."""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_help_imports_neither_numpy_nor_rich_nor_torch() -> None:
    code = (
        "import sys, contextlib, io\n"
        "from stepscope.cli.main import main\n"
        "with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit): main(['--help'])\n"
        "print(sorted({'torch', 'numpy', 'rich', 'msgspec'} & set(sys.modules)))"
    )
    assert python(code) == "[]"


@pytest.mark.parametrize("name", ["audit", "calibrate", "compare", "cost", "open", "run"])
def test_help_of_a_command_imports_neither_numpy_nor_what_reads_and_audits(name: str) -> None:
    code = (
        "import sys, contextlib, io\n"
        "from stepscope.cli.main import main\n"
        f"with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit): main([{name!r}, '--help'])\n"
        "heavy = {'torch', 'numpy', 'rich', 'stepscope.audit.build', 'stepscope.trace.reader'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    assert python(code) == "[]"


@pytest.mark.parametrize(
    "module", ["stepscope.cli.audit", "stepscope_reports.terminal", "stepscope_reports.json_report"]
)
def test_what_the_base_install_offers_imports_no_torch(module: str) -> None:
    assert python(f"import sys, {module}; print('torch' in sys.modules)") == "False"


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_ends_its_help_with_an_example(name: str) -> None:
    module = importlib.import_module(f"stepscope.cli.{name.replace('-', '_')}")
    last = (module.__doc__ or "").rstrip().splitlines()[-1]
    assert last.startswith(f"  stepscope {name} ")


def test_the_committed_schema_is_the_one_the_code_makes() -> None:
    assert SCHEMA_FILE.read_text("utf-8") == schema_text()


def test_the_schema_describes_fields_and_allows_new_ones() -> None:
    text = schema_text()
    assert '"description": "The device waits for launches most of the time."' in text
    assert "additionalProperties" not in text


def test_every_pinned_version_is_the_only_one_of_its_name(repository: Path) -> None:
    lines = (repository / "constraints.txt").read_text("utf-8").splitlines()
    pins = [line for line in lines if line and not line.startswith("#")]
    assert all(re.fullmatch(r"[a-z0-9.-]+==[0-9.]+(post[0-9]+)?", pin) for pin in pins)
    assert len({pin.split("==")[0] for pin in pins}) == len(pins)
    assert "torch==2.13.0" in pins


def test_a_machine_without_python_3_11_is_told_so_in_one_line(repository: Path, tmp_path: Path) -> None:
    arguments = ["make", "--no-print-directory", "PYTHON=", f"VENV={tmp_path / 'venv'}", "test"]
    done = subprocess.run(arguments, cwd=repository, capture_output=True, text=True, check=False)
    first = done.stderr.splitlines()[0]
    assert first == "stepscope needs Python 3.11 or newer; name one with make PYTHON=/path/to/python3"
    assert done.returncode == 2


def test_make_alone_lists_every_target_with_what_it_does(repository: Path) -> None:
    done = subprocess.run(
        ["make", "--no-print-directory"], cwd=repository, capture_output=True, text=True, check=True
    )
    names = [line.split()[1] for line in done.stdout.splitlines()]
    phony = next(
        line
        for line in (repository / "Makefile").read_text("utf-8").splitlines()
        if line.startswith(".PHONY:")
    )
    assert names == phony.split()[1:]
