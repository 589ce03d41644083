"""Of which process group a collective is that does not say so, as gloo's never do."""

from __future__ import annotations

import pytest

from stepscope.ranks.process_groups import divisions

WORLD, FIRST, SECOND = frozenset({0, 1, 2, 3}), frozenset({0, 1}), frozenset({2, 3})
PIPELINE = {0: [WORLD, FIRST], 1: [WORLD, FIRST], 2: [WORLD, SECOND], 3: [WORLD, SECOND]}


@pytest.mark.parametrize(
    ("counts", "ways"),
    [
        pytest.param({0: 3, 1: 3}, [[FIRST]], id="made by one group alone"),
        pytest.param({0: 3, 1: 3, 2: 2, 3: 2}, [[FIRST, SECOND]], id="other numbers of them"),
        pytest.param({0: 3, 1: 3, 2: 3, 3: 3}, [[FIRST, SECOND], [WORLD]], id="two answers"),
        pytest.param({0: 3, 1: 2}, [], id="none"),
        pytest.param({0: 3}, [], id="a rank of each group lacks them"),
    ],
)
def test_like_operations_are_divided_among_the_groups_that_fit(
    counts: dict[int, int], ways: list[list[frozenset[int]]]
) -> None:
    assert (
        sorted((sorted(way, key=min) for way in divisions(counts, PIPELINE)), key=len, reverse=True) == ways
    )


def test_a_group_that_only_some_ranks_have_besides_the_world_leaves_one_answer() -> None:
    groups = {0: [WORLD, FIRST], 1: [WORLD, FIRST], 2: [WORLD], 3: [WORLD]}
    assert list(divisions(dict.fromkeys(range(4), 2), groups)) == [[WORLD]]


def test_groups_that_are_the_same_ranks_of_those_here_are_one_answer() -> None:
    assert list(divisions({0: 1, 1: 1}, {0: [WORLD, FIRST], 1: [WORLD, FIRST]})) == [[FIRST]]
