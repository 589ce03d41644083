"""The project built once, and environments that hold what was built."""

from __future__ import annotations

import sys
from collections.abc import Callable

import pytest

from packaged import Built, Environment, build, copied, files_of_the_project


@pytest.fixture(scope="session")
def files() -> set[str]:
    return files_of_the_project()


@pytest.fixture(scope="session")
def built(files: set[str], tmp_path_factory: pytest.TempPathFactory) -> Built:
    return build(copied(files, tmp_path_factory.mktemp("source")), tmp_path_factory.mktemp("built"))


@pytest.fixture(scope="session")
def environment(built: Built, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Environment]:
    """An environment with the wheel and what it asks for, with extras such as "[html]", and nothing else."""

    def made(extras: str) -> Environment:
        one = Environment.made(tmp_path_factory.mktemp("environment") / "it", sys.executable)
        one.install("--no-deps", "--no-index", built.wheel)
        one.borrow(f"stepscope{extras}")
        return one

    return made
