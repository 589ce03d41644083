"""Times of several spellings, as files hold them."""

from __future__ import annotations

import tracemalloc

import pytest

from stepscope.trace.times import nanoseconds


@pytest.mark.parametrize("first", [1, 1.5, "1"], ids=type)
def test_a_long_text_among_times_takes_no_room_in_each_of_them(first: object) -> None:
    values = [first, *range(2000), "a" * 100_000]
    tracemalloc.start()
    times, readable = nanoseconds(values)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 10_000_000
    assert times[1:-1].tolist() == [1000 * value for value in range(2000)]
    assert readable.tolist() == [True] * 2001 + [False]
