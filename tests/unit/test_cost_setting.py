"""Which bucket sizes of a recorded run are tabulated."""

from __future__ import annotations

import pytest

from stepscope.budget.quantities import Size
from stepscope.cli.cost_setting import caps


@pytest.mark.parametrize(
    ("recorded", "tabulated"),
    [
        ((2.2, 26.06, 12.03), (2.2, 12.03, 26.06)),
        ((2.2, *[2.004] * 10, *[2.006] * 9, 0.0039), (2.006, 2.2)),
        ((0.5, 0.25, 0.1), (0.5,)),
    ],
)
def test_what_is_no_cap_or_cuts_the_gradients_as_another_size_does_has_no_row(
    recorded: tuple[float, ...], tabulated: tuple[float, ...]
) -> None:
    assert caps(map(Size.from_mib, recorded)) == tuple(map(Size.from_mib, tabulated))


def test_of_many_sizes_eight_are_tabulated_the_smallest_and_the_largest_among_them() -> None:
    told = [size.mib for size in caps(map(Size.from_mib, range(1, 30)))]
    assert (len(told), told[0], told[-1]) == (8, 1, 29)
