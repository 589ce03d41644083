"""Finding host events by name and by time, against looking at every one of them."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from stepscope.replay.timeline import ByStart
from stepscope.trace.columns import Category, Events, Header, Trace
from stepscope.trace.host import select
from stepscope.trace.steps import Window

EVENTS = st.lists(
    st.tuples(st.sampled_from(list(Category)), st.integers(0, 4), st.integers(0, 20), st.integers(0, 8)),
    max_size=12,
)
Drawn = list[tuple[Category, int, int, int]]


def events_of(drawn: Drawn) -> Events:
    columns = np.array(drawn, dtype=np.int64).reshape(-1, 4).T
    category, name, start, duration = columns
    same = np.zeros(len(start), dtype=np.int64)
    return Events(
        category.astype(np.uint8),
        name.astype(np.int32),
        start,
        duration,
        same,
        same,
        same,
        same.astype(np.int32),
        same,
    )


@given(EVENTS, st.sets(st.integers(0, 4)))
def test_a_name_selects_the_operators_and_annotations_that_have_it_in_the_order_of_the_file(
    drawn: Drawn, wanted: set[int]
) -> None:
    trace = Trace("a.json", events_of(drawn), [str(name) for name in range(5)], Header(), 0)
    found = select(trace, lambda name: int(name) in wanted)
    on_host = (Category.CPU_OP, Category.USER_ANNOTATION)
    assert found.tolist() == [
        row for row, (category, name, _, _) in enumerate(drawn) if category in on_host and name in wanted
    ]


@given(EVENTS, st.integers(0, 20), st.integers(1, 8))
def test_a_window_holds_the_events_that_begin_in_it_and_is_reached_by_those_of_which_a_part_lies_in_it(
    drawn: Drawn, begin: int, length: int
) -> None:
    window = Window(1, begin, begin + length)
    by_start = ByStart(events_of(drawn), np.arange(len(drawn)))
    begun, reaching = by_start.begun_in(window), by_start.reaching_into(window)
    spans = [(start, start + duration) for _, _, start, duration in drawn]
    assert sorted(begun.tolist()) == [
        row for row, (start, _) in enumerate(spans) if window.start <= start < window.end
    ]
    assert sorted(reaching.tolist()) == [
        row for row, (start, end) in enumerate(spans) if start < window.end and end > window.start
    ]
