"""The picture of a step: what lies where, to the cell."""

from __future__ import annotations

import msgspec

import sample_audits
from stepscope.audit.result import Collective, Step, Timeline
from stepscope_reports.lanes import ASCII, UNICODE, draw

WIDTH = 19 + 40
"""The labels and 40 cells: 10 ms a cell of a 400 ms step."""


def lines(step: Step, collectives: list[Collective], glyphs: object = UNICODE) -> list[str]:
    return [
        line.plain.rstrip()
        for line in draw(step, collectives, WIDTH, UNICODE if glyphs is UNICODE else ASCII)
    ]


def gradient(start: float, duration: float, **changes: object) -> Collective:
    made = sample_audits.collectives(0, 5)[1]
    return msgspec.structs.replace(made, start_ms=start, duration_ms=duration, **changes)


def test_every_lane_lies_on_the_time_axis() -> None:
    assert lines(sample_audits.step(5), sample_audits.collectives(0, 5)) == [
        "ms                 0         100       200       300",
        "                   ┬─────────┬─────────┬─────────┬─────────",
        "forward            ██████████",
        "backward                     ████████████████████",
        "optimizer                                              ████",
        "bucket 0  25.0 MiB                   ░░░░░░░░░░",
        "bucket 1  20.0 MiB                             ░░▓▓▓▓▓▓",
        "other              ░",
    ]


def test_compute_after_backward_that_is_no_optimizers_has_a_lane_of_its_own() -> None:
    """As the clipping of gradients; the audit counts it as forward, where it is not drawn."""
    made = sample_audits.step(5)
    assert made.timeline is not None
    clipped = msgspec.structs.replace(made.timeline, forward=[(0.0, 100.0), (320.0, 360.0)])
    drawn = lines(msgspec.structs.replace(made, timeline=clipped), sample_audits.collectives(0, 5))
    assert drawn[2:6] == [
        "forward            ██████████",
        "backward                     ████████████████████",
        "other compute                                      ████",
        "optimizer                                              ████",
    ]


def test_a_later_step_is_drawn_from_its_own_start() -> None:
    first = lines(sample_audits.step(5), sample_audits.collectives(0, 5))
    later = lines(sample_audits.step(6, start=1234.5), sample_audits.collectives(0, 6, start=1234.5))
    assert later == first


def test_a_half_busy_cell_is_half_as_high() -> None:
    timeline = Timeline(forward=[(0.0, 5.0), (10.0, 11.0)], backward=[], optimizer=[], exposed=[])
    step = msgspec.structs.replace(sample_audits.step(5), timeline=timeline)
    assert lines(step, [])[2:] == ["forward            ▅▂"]
    assert lines(step, [], ASCII)[2:] == ["forward            :."]


def test_a_collective_shorter_than_a_cell_is_still_seen() -> None:
    assert (
        lines(sample_audits.step(5), [gradient(223.0, 0.5)])[-1]
        == "bucket 0  25.0 MiB                       ░"
    )


def test_the_time_between_ready_and_start_is_marked() -> None:
    row = lines(sample_audits.step(5), [gradient(250.0, 30.0, ready_ms=220.0)])[-1]
    assert row == "bucket 0  25.0 MiB                       ···░░░"


def test_a_collective_that_outlives_its_step_widens_the_picture() -> None:
    drawn = lines(sample_audits.step(5), [gradient(380.0, 420.0)])
    assert drawn[0] == "ms                 0         200       400       600"
    assert drawn[-1] == "bucket 0  25.0 MiB                    ░░░░░░░░░░░░░░░░░░░░░"


def test_beyond_twelve_buckets_those_in_the_middle_share_a_row() -> None:
    many = [gradient(100.0 + 10 * index, 10.0) for index in range(20)]
    labels = [line[:19].strip() for line in lines(sample_audits.step(5), many)[5:]]
    assert labels == [
        *(f"bucket {index:<3}25.0 MiB" for index in range(6)),
        "+9 more",
        *(f"bucket {index:<3}25.0 MiB" for index in range(15, 20)),
    ]
    assert lines(sample_audits.step(5), many)[11] == "+9 more                            ░░░░░░░░░"


def test_a_step_without_a_timeline_is_not_drawn() -> None:
    assert lines(msgspec.structs.replace(sample_audits.step(5), timeline=None), []) == []
