"""Another package's entry points: found beside ours, and named in one line where they fail."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from stepscope.cli.main import main

TRACES = Path(__file__).parents[1] / "data" / "traces"
DDP = tuple(str(TRACES / f"ddp_rank{rank}.pt.trace.json.gz") for rank in (0, 1))
MODULE = """\
def fails(audit, stream):
    return 1 / len("")

def nothing(case):
    return None

def terminal(audit, stream):
    stream.write("not ours\\n")
"""


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A package as pip leaves it: modules, and its entry points beside them."""
    packages = tmp_path / "site-packages"
    described = packages / "broken_example-0.9.dist-info"
    described.mkdir(parents=True)
    (described / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: broken-example\nVersion: 0.9\n", "utf-8"
    )
    (described / "entry_points.txt").write_text(
        "[stepscope.reports]\n"
        "in-render = broken_example:fails\n"
        "on-import = broken_import:render\n"
        "not-there = broken_example:render\n"
        "terminal = broken_example:terminal\n"
        "[stepscope.causes]\n"
        "of-nothing = broken_example:nothing\n",
        "utf-8",
    )
    (packages / "broken_example.py").write_text(MODULE, "utf-8")
    (packages / "broken_import.py").write_text("import not_installed\n", "utf-8")
    monkeypatch.syspath_prepend(packages)


@pytest.fixture(params=["importlib.metadata", "importlib_metadata"], autouse=True)
def finder(request: pytest.FixtureRequest) -> None:
    """Entry points are the standard library's, or those of the package that takes its place once anything imports it."""
    pytest.importorskip(request.param)


@pytest.mark.parametrize(
    ("report", "why"),
    [
        ("in-render", "ZeroDivisionError: division by zero (broken_example.py, line 2)"),
        ("on-import", "ModuleNotFoundError: No module named 'not_installed' (broken_import.py, line 1)"),
        ("not-there", "AttributeError: module 'broken_example' has no attribute 'render'"),
    ],
)
@pytest.mark.usefixtures("install")
def test_a_report_that_fails_is_one_line_with_its_package(
    report: str, why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["audit", *DDP, "--report", report]) == 2
    assert capsys.readouterr().err == (
        f"stepscope: error: {report!r} (stepscope.reports) of the package broken-example 0.9 failed: {why}; "
        "update or uninstall that package\n"
    )


@pytest.mark.usefixtures("install")
def test_a_cause_that_fails_is_left_out_of_the_audit_with_a_warning(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["audit", *DDP, "--json", "-"]) == 0
    (warning,) = json.loads(capsys.readouterr().out)["warnings"]
    assert warning["code"] == "cause-failed"
    assert warning["message"].startswith(
        "left out: 'of-nothing' (stepscope.causes) of the package broken-example 0.9 failed: TypeError: "
    )


@pytest.mark.usefixtures("install")
def test_a_name_that_is_ours_stays_ours(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["audit", *DDP]) == 0
    assert "not ours" not in capsys.readouterr().out


@pytest.mark.usefixtures("install")
def test_the_reports_of_other_packages_are_listed_with_ours(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["audit", *DDP, "--report", "pdf"]) == 2
    assert "no report 'pdf'; there are html, in-render, json, markdown, not-there, on-import, perfetto, " in (
        capsys.readouterr().err
    )
