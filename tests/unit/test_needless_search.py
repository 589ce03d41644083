"""A search for unused parameters that finds none and costs too little for a finding is told all the same."""

from __future__ import annotations

from pathlib import Path

import pytest

from gloo_job import Host, case_of, ddp, lay_out
from stepscope.audit.causes import find_causes
from stepscope.audit.causes.unused import SEARCH, needless_search

ELEMENTS = 1000


def told(folder: Path, gradients: int, search_us: float) -> list[str]:
    """The warnings and findings about the search in a job that reduces twelve parameters in two buckets."""

    def program(host: Host) -> None:
        host.forward(2000)
        if search_us:
            host.work(SEARCH, search_us)
        ddp(host, [ELEMENTS] * gradients, [(6 * ELEMENTS, 5), (6 * ELEMENTS, gradients - 1)], node_us=2000)
        host.update(1000)

    case = case_of(folder, lay_out(program, steps=3, per_element=1 / ELEMENTS))
    findings, _ = find_causes(case)
    about = [finding.cause for finding in findings if finding.cause == "find-unused-parameters"]
    return [*about, *(warning.code for warning in needless_search(case, findings))]


@pytest.mark.parametrize(
    ("gradients", "search_us", "expected"),
    [
        (12, 70, ["needless-search"]),
        (12, 7000, ["find-unused-parameters"]),
        (11, 70, []),
        (12, 0, []),
    ],
    ids=["cheap", "dear", "one parameter is unused", "no search"],
)
def test_a_search_is_told_once_and_only_where_it_finds_nothing(
    gradients: int, search_us: float, expected: list[str], tmp_path: Path
) -> None:
    assert told(tmp_path, gradients, search_us) == expected
