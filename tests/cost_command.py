"""Running `stepscope cost` in tests: what it prints, its JSON, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from stepscope.cli.main import main


def printed(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> str:
    assert main([*map(str, arguments)]) == 0
    return capsys.readouterr().out


def made(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> dict[str, Any]:
    read: dict[str, Any] = json.loads(printed(capsys, *arguments, "--json", "-"))
    return read


def inputs(budget: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {row["name"]: row for row in budget["inputs"]}


def refused(capsys: pytest.CaptureFixture[str], message: str, *arguments: str | Path) -> None:
    assert main([*map(str, arguments)]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith(f"stepscope: error: {message}")
    assert captured.err.count("\n") == 1
