"""The guide builds without a warning, knows every cause, and each of its commands does what it says."""

from __future__ import annotations

import functools
import json
import re
import shutil
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

import pytest

from documented import blocks, shell, with_less
from stepscope.audit.causes import GROUP
from stepscope.cli.main import COMMANDS

REPOSITORY = Path(__file__).resolve().parents[2]
PAGES = {page.stem: page.read_text("utf-8") for page in sorted((REPOSITORY / "docs").glob("*.md"))}
README = blocks((REPOSITORY / "README.md").read_text("utf-8"), "sh")
TRIED_THERE = {line for line in "".join(README).splitlines() if not line.startswith("stepscope sweep ")}
"""What test_readme runs, in a folder like ours."""
RUNNABLE = {name: text for name, text in PAGES.items() if blocks(text, "sh")}
SHOWN = [
    line.removeprefix("$ ").strip()
    for text in PAGES.values()
    for block in blocks(text, "console")
    for line in block.replace("\\\n", " ").splitlines()
    if "stepscope " in line
]


def test_it_builds_without_a_warning(tmp_path: Path) -> None:
    built = subprocess.run(
        [sys.executable, "-m", "sphinx", "--fail-on-warning", "--quiet", REPOSITORY / "docs", tmp_path],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (built.returncode, built.stderr) == (0, "")


def test_every_cause_has_its_section() -> None:
    sections = set(re.findall(r"^### ([a-z0-9-]+)$", PAGES["causes"], re.M))
    causes = {point.name for point in entry_points(group=GROUP) if point.value.startswith("stepscope.")}
    on_the_device_too = {"wait-edge-on-device"}  # reported as wait-edge-in-backward
    assert sections == causes - on_the_device_too


@functools.cache
def help_of(*words: str) -> str:
    command = [sys.executable, "-m", *words, "--help"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize("line", SHOWN)
def test_a_command_for_machines_that_are_not_here_uses_options_that_exist(line: str) -> None:
    """Those of `console` blocks: SLURM, GPUs, a browser."""
    command = line[line.index("stepscope ") :].split()[1]
    assert command in COMMANDS
    known = help_of("stepscope", command)
    if command in ("run", "calibrate", "sweep"):
        known += help_of("torch.distributed.run")
    own = re.split(r"\s(?:gpt|train\.py)\b", line)[0]
    assert [flag for flag in re.findall(r"--[a-z-]+", own) if flag not in known] == []


@pytest.mark.slow
@pytest.mark.parametrize("page", RUNNABLE)
def test_the_commands_of_a_page_run_in_their_order(page: str, recorded: Path, tmp_path: Path) -> None:
    """In a folder with what they take: a recorded run, a script, and traces."""
    shutil.copytree(recorded, tmp_path, dirs_exist_ok=True)
    shutil.copytree(recorded / "runs/demo", tmp_path / "traces", ignore=shutil.ignore_patterns("*.json"))
    shutil.copy(REPOSITORY / "tests/data/scripts/ddp.py", tmp_path / "train.py")
    comm_bound = json.loads((recorded / "runs/demo/audit.json").read_text("utf-8"))["verdict"]["label"]
    for command in "".join(blocks(RUNNABLE[page], "sh")).splitlines():
        if command in TRIED_THERE or command.startswith("pip install "):
            continue
        done = shell(with_less(command), tmp_path)
        gated = f"--fail-on {comm_bound}" in command
        assert done.returncode == (1 if gated else 0), f"{command}\n{done.stdout}\n{done.stderr}"
        for written in re.findall(r" (?:-o|--json|--out) (\S+\.\w+)", command):
            assert (tmp_path / written).stat().st_size > 0
