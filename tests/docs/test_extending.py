"""The guide's page on extending shows the package that the tests install, and nothing but it."""

from __future__ import annotations

from pathlib import Path

from documented import blocks


def test_it_shows_every_file_of_the_test_package_as_it_is(repository: Path) -> None:
    page = (repository / "docs" / "extending.md").read_text("utf-8")
    plugin = repository / "tests" / "data" / "plugin"
    shown = [*blocks(page, "toml"), *blocks(page, "python")]
    files = [file for file in plugin.rglob("*.*") if file.is_file() and file.suffix in (".py", ".toml")]
    assert sorted(shown) == sorted(file.read_text("utf-8") for file in files if file.stem != "__init__")
