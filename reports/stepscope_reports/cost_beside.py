"""The model beside a recorded run, as lines."""

from __future__ import annotations

from collections.abc import Iterator

from rich.text import Text

from stepscope.budget.quantities import Time
from stepscope.budget.result import Comparison, SizeComparison, StepComparison
from stepscope.units import plural, size
from stepscope_reports.cost_tables import NONE, ms
from stepscope_reports.plain import clean, paragraph, table

MOST_ROWS = 20
"""Sizes that are shown; all of them are in the JSON."""

_NAMES = {"all_reduce": "all-reduce", "reduce_scatter": "reduce-scatter", "all_gather": "all-gather"}


def measured_verdict(made: Comparison, width: int, *, modelled: bool) -> list[Text]:
    """What the run's own audit says, before anything that a model says."""
    reason = "" if made.reason == made.label else f" ({clean(made.reason)})"
    beside = " No model replaces it; this one says:" if modelled else ""
    return paragraph(
        f"{clean(made.label)}{reason}, measured in {plural(made.steps, 'step')} of {made.run}.{beside}", width
    )


def buckets(made: Comparison, width: int) -> list[Text]:
    """A row a size of gradient collective, then why model and measurement part, size by size."""
    rows = made.sizes[:MOST_ROWS]
    columns = ("<size", "<collective", "a step", "measured ms", "from", "to", "model ms", "model off")
    lines = table(columns, [_row(row) for row in rows])
    if len(made.sizes) > MOST_ROWS:
        lines += paragraph(
            f"and {plural(len(made.sizes) - MOST_ROWS, 'more size')}: --json has them all", width
        )
    unit = "durations, waiting included" if any(row.waiting_included for row in rows) else "transfers"
    source = "" if made.model is None else f"; the model by {made.model}"
    lines += paragraph(f"measured: median and quartiles of {unit}{source}.", width)
    for row in rows:
        if row.remarks:
            lines += paragraph(f"{size(row.size.bytes)}: {'; '.join(row.remarks)}.", width)
    return lines


def _row(row: SizeComparison) -> tuple[str, ...]:
    return (
        size(row.size.bytes),
        _NAMES.get(row.collective, clean(row.collective)),
        f"{row.count:,}",
        *map(ms, (row.measured, row.measured_low, row.measured_high)),
        _time(row.model),
        _off(row.difference),
    )


def step(made: Comparison, width: int) -> list[Text]:
    """A step's communication, hidden and exposed, measured and by the model."""
    whole = made.step
    lines = table(("<", "measured ms", "model ms", "model off"), list(_step_rows(whole)))
    lines += paragraph("measured: medians over steps, which need not add up.", width)
    for text in made.remarks:
        lines += paragraph(text, width)
    return lines


def _step_rows(whole: StepComparison) -> Iterator[tuple[str, ...]]:
    yield (
        "communication",
        ms(whole.communication),
        _time(whole.model_communication),
        _off(whole.difference),
    )
    for name, measured, model in (
        ("  hidden", whole.hidden, whole.model_hidden),
        ("  exposed", whole.exposed, whole.model_exposed),
    ):
        yield name, ms(measured), _time(model), _off(_difference(measured, model))
    if whole.floor is not None:
        yield "  floor", ms(whole.floor), NONE, NONE


def _difference(measured: Time, model: Time | None) -> float | None:
    return None if model is None or not measured.base else model / measured - 1


def _time(time: Time | None) -> str:
    return NONE if time is None else ms(time)


def _off(difference: float | None) -> str:
    return NONE if difference is None else f"{100 * difference:+.1f} %"
