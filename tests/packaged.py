"""What tests of packaging share: the project built from its own files alone, and environments to install it into."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from importlib.metadata import distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement

REPOSITORY = Path(__file__).resolve().parents[1]


@dataclass(frozen=True)
class Built:
    """A source distribution, and the wheel that was made from it."""

    sdist: Path
    wheel: Path


def files_of_the_project() -> set[str]:
    """The files that git has, or would add; skips where there is no git to ask."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    if shutil.which("git") is None or not (REPOSITORY / ".git").exists():
        pytest.skip("needs a git checkout, which knows the project's files from others that lie there")
    listed = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=True).stdout
    return {file for file in listed.split("\0") if file and (REPOSITORY / file).is_file()}


def copied(files: set[str], folder: Path) -> Path:
    """Those files of the project alone: nothing that an earlier build left is in the way of another, or of help."""
    for file in files:
        copy = folder / file
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(REPOSITORY / file, copy)
    return folder


def build(source: Path, folder: Path) -> Built:
    """`python -m build`, with the build tools that are installed here."""
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder)]
    done = subprocess.run(command, cwd=source, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    (sdist,), (wheel,) = folder.glob("*.tar.gz"), folder.glob("*.whl")
    return Built(sdist, wheel)


def interpreter(version: str) -> Path | None:
    """A Python of that minor version, such as 3.12: this one, one on PATH, or one that pyenv has."""
    if version == f"{sys.version_info.major}.{sys.version_info.minor}":
        return Path(sys.executable)
    of_pyenv = Path.home().glob(f".pyenv/versions/{version}*/bin")
    path = os.pathsep.join([*map(str, of_pyenv), os.environ.get("PATH", "")])
    found = shutil.which(f"python{version}", path=path)
    # pyenv leaves a program of that name on PATH for versions that it then refuses to run
    runs = found and subprocess.run([found, "-c", ""], capture_output=True, check=False).returncode == 0
    return Path(found) if found and runs else None


@dataclass(frozen=True)
class Environment:
    """A virtual environment of its own, with nothing in it at first: not even pip."""

    folder: Path

    @classmethod
    def made(cls, folder: Path, python: str | Path) -> Environment:
        subprocess.run([python, "-m", "venv", "--without-pip", folder], check=True)
        return cls(folder)

    @property
    def python(self) -> Path:
        return self.folder / "bin" / "python"

    @property
    def packages(self) -> Path:
        (found,) = (self.folder / "lib").glob("python*/site-packages")
        return found

    def install(self, *arguments: str | Path) -> None:
        """With this environment's pip, and the versions that the tests run on."""
        pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", "--python", self.python]
        pinned = ["install", "--no-compile", "--constraint", REPOSITORY / "constraints.txt"]
        command = [str(part) for part in (*pip, *pinned, *arguments)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr

    def borrow(self, *requirements: str) -> None:
        """Have the distributions that these ask for, and what those need, as links to the ones that the tests run with."""
        for name in _needed([Requirement(text) for text in requirements]):
            for entry in {Path(file).parts[0] for file in distribution(name).files or []}:
                target = self.packages / entry
                if entry not in ("..", "__pycache__") and not target.exists():
                    target.symlink_to(Path(str(distribution(name).locate_file(entry))))

    def run(self, program: str, *arguments: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
        """One of its programs, in a folder, with no variable that would lead Python elsewhere."""
        return subprocess.run(
            [self.folder / "bin" / program, *arguments],
            cwd=cwd,
            env={name: value for name, value in os.environ.items() if not name.startswith("PYTHON")},
            capture_output=True,
            text=True,
            check=False,
        )


def _needed(requirements: list[Requirement]) -> set[str]:
    """The names of all distributions that an installation of these would have, less our own."""
    found: set[tuple[str, frozenset[str]]] = set()
    while requirements:
        one = requirements.pop()
        if (asked := (one.name, frozenset(one.extras))) in found:
            continue
        found.add(asked)
        for extra in one.extras or {""}:
            below = map(Requirement, distribution(one.name).requires or [])
            requirements += [
                each for each in below if each.marker is None or each.marker.evaluate({"extra": extra})
            ]
    return {name for name, _ in found} - {"stepscope"}
