"""The project built once, for all tests of what was built."""

from __future__ import annotations

import pytest

from packaged import Built, build, files_of_the_project


@pytest.fixture(scope="session")
def files() -> set[str]:
    return files_of_the_project()


@pytest.fixture(scope="session")
def built(files: set[str], tmp_path_factory: pytest.TempPathFactory) -> Built:
    return build(files, tmp_path_factory.mktemp("built"))
