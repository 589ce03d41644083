"""The fault matrix as a page: who was found instead of whom, what clean runs show, and how right the prices are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from stepscope.stats import median

TOP_TARGET, CLEAN_TARGET, PRICE_TARGET = 0.95, 0.03, 0.20
NOTHING = "nothing"
PARTLY = {"zero-1", "slow-link", "no-warm-up", "large-embedding"}
"""Faults whose clean twin differs by more than the cause: half the optimizer's work, the link, the warm-up, the model."""

Cell = dict[str, Any]


def page(study: dict[str, Any]) -> str:
    """The study in Markdown: every figure is measured, also where it falls short."""
    cells = study["cells"]
    parts = (_head(study), _confusion(cells), _clean(cells), _prices(cells))
    return "\n".join(line for part in parts for line in part) + "\n"


def top(cell: Cell) -> str:
    """The costliest finding of a run with a fault."""
    return str(cell["found"][0]) if cell["found"] else NOTHING


def largest(cell: Cell) -> float:
    """The largest finding of the clean twin as a share of its step."""
    return max((float(found["share"]) for found in cell["clean_found"]), default=0.0)


def error(cell: Cell) -> float | None:
    """The price against the measured difference of the recorded steps; None without a price."""
    difference = cell["recorded_difference_ms"]
    return cell["price_ms"] / difference - 1 if cell["price_ms"] is not None and difference > 0 else None


def _head(study: dict[str, Any]) -> Iterator[str]:
    cells = study["cells"]
    right = sum(top(cell) == cell["cause"] for cell in cells)
    yield "# Are injected faults found, and priced right?\n"
    yield f"Made by `{' '.join(study['command'])}`; all figures are in [study.json](study.json).\n"
    yield (
        f"{len(cells)} runs with a fault and as many clean ones, on two gloo ranks, {study['cpus']} processors, fabric "
        f"{study['fabric']}.\n"
    )
    yield f"- The injected cause is the top finding in {right} of {len(cells)} ({_percent(right / max(1, len(cells)))})."
    small = sum(largest(cell) <= CLEAN_TARGET for cell in cells)
    yield f"- Clean runs without a finding above {_percent(CLEAN_TARGET)} of the step: {small} of {len(cells)}."
    errors = [value for cell in cells if cell["fault"] not in PARTLY and (value := error(cell)) is not None]
    near = sum(abs(value) <= PRICE_TARGET for value in errors)
    yield f"- Priced within {_percent(PRICE_TARGET)} of the measured difference: {near} of {len(errors)}.\n"


def _confusion(cells: Sequence[Cell]) -> Iterator[str]:
    yield "## Top finding by injected fault\n"
    yield "| fault | cause | top finding | found at all |"
    yield "|---|---|---|---|"
    for fault in _faults(cells):
        mine = [cell for cell in cells if cell["fault"] == fault]
        tops = Counter(map(top, mine)).most_common()
        at_all = sum(cell["cause"] in cell["found"] for cell in mine)
        named = ", ".join(f"{cause} {count}" for cause, count in tops)
        yield f"| {fault} | {mine[0]['cause']} | {named} | {at_all} of {len(mine)} |"
    yield ""


def _clean(cells: Sequence[Cell]) -> Iterator[str]:
    yield "## Clean runs\n"
    yield "| cause found | runs | largest share of the step |"
    yield "|---|---|---|"
    found = [one for cell in cells for one in cell["clean_found"]]
    for cause, count in Counter(one["cause"] for one in found).most_common():
        share = max(one["share"] for one in found if one["cause"] == cause)
        yield f"| {cause} | {count} | {_percent(share)} |"
    without = sum(not cell["clean_found"] for cell in cells)
    yield f"| {NOTHING} | {without} | |\n"


def _prices(cells: Sequence[Cell]) -> Iterator[str]:
    yield "## Price against the measured difference to the clean run\n"
    yield (
        "Both of the recorded steps, medians over a fault's runs, in ms; without the profiler beside it. Where the clean twin "
        f"differs by more than the cause ({', '.join(sorted(PARTLY))}), the two need not agree.\n"
    )
    yield "| fault | step | clean | difference | unprofiled | price | within 20 % |"
    yield "|---|---|---|---|---|---|---|"
    for fault in _faults(cells):
        mine = [cell for cell in cells if cell["fault"] == fault]
        prices = [cell["price_ms"] for cell in mine if cell["price_ms"] is not None]
        errors = [value for cell in mine if (value := error(cell)) is not None]
        near = f"{sum(abs(value) <= PRICE_TARGET for value in errors)} of {len(mine)}"
        columns = ("step_ms", "clean_step_ms", "recorded_difference_ms", "difference_ms")
        figures = " | ".join(f"{median([cell[column] for cell in mine]):.1f}" for column in columns)
        price = f"{median(prices):.1f}" if prices else ""
        yield f"| {fault} | {figures} | {price} | {near if fault not in PARTLY else ''} |"


def _faults(cells: Sequence[Cell]) -> list[str]:
    return list(dict.fromkeys(cell["fault"] for cell in cells))


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"
