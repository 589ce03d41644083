"""Commands as documents show them, and a shell that runs them as a user would."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path


def blocks(page: str, language: str) -> list[str]:
    """The fenced code blocks of a Markdown page in that language, in order."""
    return re.findall(rf"^```{language}\n(.*?)^```", page, re.M | re.S)


LESS = {
    "--repeat 2": "--repeat 1",
    "calibrate --nproc-per-node 2": "calibrate --nproc-per-node 2 --repeats 3 --warmup 1 --step-factor 4",
    "--bucket-cap-mb 1000": "--bucket-cap-mb 1000 --preset 1m",
}
"""What documents show, and what the tests run in its place: the same with less of it, as it proves no more with more."""


def with_less(command: str) -> str:
    """The command as the tests run it."""
    for shown, run in LESS.items():
        command = command.replace(shown, run)
    return command


def shell(command: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """The command as a user types it in an activated environment."""
    binaries = str(Path(sys.executable).parent)
    environment = {**os.environ, "PATH": binaries + os.pathsep + os.environ["PATH"]}
    return subprocess.run(
        ["bash", "-c", command], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )


def demo(repository: Path, folder: Path) -> subprocess.CompletedProcess[str]:
    """`make demo` in `folder`: its own recipe, run with this environment."""
    recipe = subprocess.run(
        ["make", "--dry-run", "--silent", "demo", "OUT=runs/demo"],
        cwd=repository,
        capture_output=True,
        text=True,
        check=True,
    )
    return shell(recipe.stdout.splitlines()[-1].replace(".venv/bin/", ""), folder)
