"""What the README and the guide are tried on."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from documented import demo


@pytest.fixture(scope="session")
def recorded(made_once: Callable[[str, Callable[[Path], None]], Path], repository: Path) -> Path:
    """What `make demo` leaves, and what it printed, in stdout.txt."""

    def make(folder: Path) -> None:
        done = demo(repository, folder)
        assert done.returncode == 0, done.stderr
        (folder / "stdout.txt").write_text(done.stdout, "utf-8")

    return made_once("demo", make)
