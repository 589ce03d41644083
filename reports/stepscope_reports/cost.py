"""A budget for a terminal: the verdict first, then the figures that lead to it, the fixes, and where the inputs are from.

80 columns are enough; colour adds nothing that the text does not say; piped, it is plain text.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TextIO

from rich.console import Console
from rich.text import Text

from stepscope.budget.result import Budget, Communication, Comparison, Heuristic, Ring, Unmodelled, Verdict
from stepscope.units import percent
from stepscope_reports import cost_beside, cost_fixes, cost_tables
from stepscope_reports.plain import paragraph

WIDTH = 80
WIDEST = 100
_INDENT = "  "
_STYLES = {
    "communication-bound": "bold red",
    "communication-sensitive": "bold yellow",
    "compute-bound": "bold green",
    "no communication": "bold cyan",
}


def render(budget: Budget | Unmodelled, stream: TextIO) -> None:
    """Write the report to a text stream; colour and a wider terminal are used where the stream is a terminal."""
    console = Console(file=stream, markup=False, highlight=False, emoji=False)
    width = min(console.width, WIDEST) if console.is_terminal else WIDTH
    with console.capture() as capture:
        for line in _lines(budget, width):
            line.rstrip()
            console.print(line, soft_wrap=True)
    stream.write(capture.get())  # the console itself would end the process when a pipe is closed


def _lines(budget: Budget | Unmodelled, width: int) -> Iterable[Text]:
    inner = width - len(_INDENT)
    if budget.warning is not None:
        yield from (Text(line.plain, "bold") for line in paragraph(budget.warning, width))
        yield Text()
    if budget.comparison is not None:
        yield from cost_beside.measured_verdict(
            budget.comparison, width, modelled=not isinstance(budget, Unmodelled)
        )
    if isinstance(budget, Unmodelled):
        yield from _beside(budget.comparison, inner)
        yield from _remarks(budget, inner)
        yield from _section("Inputs", cost_tables.inputs(budget.inputs, inner))
    else:
        yield from _budget(budget, width)
    yield from _section("Limits", [line for text in budget.limits for line in paragraph(text, inner)])


def _beside(made: Comparison, width: int) -> Iterable[Text]:
    yield from _section("Gradient collectives, model beside measurement", cost_beside.buckets(made, width))
    yield from _section("A step's gradients", cost_beside.step(made, width))


def _remarks(budget: Budget | Unmodelled, width: int) -> Iterable[Text]:
    yield from _section("Of the inputs", [line for text in budget.remarks for line in paragraph(text, width)])


def _budget(budget: Budget, width: int) -> Iterable[Text]:
    inner = width - len(_INDENT)
    yield from _verdict(budget.verdict, width)
    if budget.comparison is not None:
        yield from _beside(budget.comparison, inner)
    yield from _remarks(budget, inner)
    if budget.heuristic and budget.communication:
        rule = _rule(budget.heuristic, budget.communication.ring, inner)
        yield from _section("The bare rule, which is no verdict", rule)
    yield from _section("Inputs", cost_tables.inputs(budget.inputs, inner))
    if budget.communication:
        yield from _communication(budget, budget.communication, inner)
    yield from _section("Memory of model states, a rank", cost_tables.memory(budget, inner))
    yield from _section("On other numbers of ranks (ring, ms)", cost_tables.scaling(budget, inner))


def _communication(budget: Budget, communication: Communication, width: int) -> Iterable[Text]:
    yield from _section(
        "A step's communication by the ring", cost_tables.ring(budget, communication.ring, width)
    )
    yield from _section("Buckets in backward", cost_tables.buckets(communication, width))
    yield from _section("Other algorithms for the all-reduce", cost_tables.beyond_ring(communication, width))
    yield from _section("Other collectives of the whole message", cost_tables.others(communication.others))
    for title, body in cost_fixes.fixes(budget, communication, width):
        yield from _section(f"Fix: {title}", body)


def _section(title: str, body: Sequence[Text]) -> Iterable[Text]:
    """A title over its indented body; nothing where the body is empty."""
    if body:
        yield Text()
        yield Text(title, "bold")
        yield from (Text(_INDENT).append_text(line) for line in body)


def _verdict(verdict: Verdict, width: int) -> Iterable[Text]:
    for line in paragraph(f"{verdict.label}, by the model. {verdict.reason}", width):
        line.highlight_words([verdict.label], _STYLES.get(verdict.label, "bold"))
        yield line


def _rule(heuristic: Heuristic, made: Ring, width: int) -> list[Text]:
    side = "over" if made.share > heuristic.threshold else "not over"
    return paragraph(
        f"{heuristic.label}: {percent(made.share)} of the step, {made.cut}, is {side} {100 * heuristic.threshold:.0f} %. It asks "
        "neither whether communication fits behind backward nor whether it overlaps.",
        width,
    )
