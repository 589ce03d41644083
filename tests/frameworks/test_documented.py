"""Each row of the guide's table of frameworks has a test, which the guide names."""

from __future__ import annotations

import re
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
PAGE = (REPOSITORY / "docs" / "frameworks.md").read_text("utf-8")
SUPPORTED, HELD = PAGE.split("## Which test holds which row")


def rows(text: str) -> list[list[str]]:
    """The cells of a table's rows, without its head."""
    lines = [line for line in text.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[1:]]


def test_each_row_of_the_table_has_a_test() -> None:
    assert [row[0] for row in rows(HELD)] == [row[0] for row in rows(SUPPORTED)]
    assert all("the same" in cell or "`: `" in cell for _, cell in rows(HELD))


def test_the_tests_that_it_names_exist() -> None:
    named = re.findall(r"`(tests/[\w/]+\.py)`(?:: `(\w+)`)?", HELD)
    assert len(named) > len(rows(HELD)) / 2
    for file, test in named:
        assert re.search(rf"^ *(def|class) {test}\b", (REPOSITORY / file).read_text("utf-8"), re.MULTILINE)
