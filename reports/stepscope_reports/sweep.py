"""A sweep for a terminal: the answer first, then what was measured, how the candidates compare, and what the models say."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TextIO, TypeVar

from rich.text import Text

from stepscope.sweep.result import Row, Sweep
from stepscope.units import decimals, percent, plural
from stepscope_reports.plain import clean, paragraph, table, write_lines

Value = TypeVar("Value")

WIDTH = 80
NONE = "-"
OWN_CAP = "the script's own cap"
"""How a result names it; the tables have the size."""
_INDENT = "  "
_LONGEST_LABEL = 14
"""Longer ones would push the tables over the edge: then candidates are numbered."""


def render(sweep: Sweep, stream: TextIO) -> None:
    """Write the report to a text stream, in 80 columns."""
    write_lines(_lines(sweep), stream)


def _lines(sweep: Sweep) -> Iterable[Text]:
    inner = WIDTH - len(_INDENT)
    for line in paragraph(sweep.explanation, WIDTH):
        line.stylize("bold")
        yield line
    shown = [row for row in sweep.rows if row.step_ms is not None]
    heads = _heads(sweep.rows)
    if any(head.startswith("#") for head in heads.values()):
        yield from _section(
            "Candidates", [Text(f"{head:>3}  {clean(label)}") for label, head in heads.items()]
        )
    yield from _section("Measured, ms a step", _measured(shown, heads))
    yield from _section("Beside the fastest, round by round", _compared(shown, heads))
    yield from _section("By the models", _modelled(shown, heads))
    yield from _section("Not measured", [line for row in sweep.rows for line in _problem(row, inner)])
    yield from _section("How", [line for text in _remarks(sweep) for line in paragraph(text, inner)])
    yield Text()
    yield from paragraph(f"Next: {sweep.next_step}", WIDTH)


def _section(title: str, body: Sequence[Text]) -> Iterable[Text]:
    """A title over its indented body; nothing where the body is empty."""
    if body:
        yield Text()
        yield Text(title, "bold")
        yield from (Text(_INDENT).append_text(line) for line in body)


def _heads(rows: Sequence[Row]) -> dict[str, str]:
    """What stands for each candidate in the tables, by its label."""
    shown = {row.label: row.label.replace(OWN_CAP, _own(row)) for row in rows}
    short = all(len(head) <= _LONGEST_LABEL for head in shown.values())
    return shown if short else {label: f"#{number}" for number, label in enumerate(shown, 1)}


def _own(row: Row) -> str:
    return "script's own" if row.bucket_cap_mb is None else f"own: {row.bucket_cap_mb:g} MiB"


def _measured(rows: Sequence[Row], heads: dict[str, str]) -> list[Text]:
    columns = ("<candidate", "count", "step", "95 %", "backward", "exposed", "floor", "overlap")
    if not rows:
        return []
    return table(
        columns,
        [
            (
                heads[row.label],
                _or_none(row.buckets, str),
                _or_none(row.step_ms, _ms),
                _or_none(row.step_ms_ci, lambda ends: f"{_ms(ends[0])} to {_ms(ends[1])}"),
                *(_or_none(value, _ms) for value in (row.backward_ms, row.exposed_ms, row.floor_ms)),
                _or_none(row.overlap_backward, percent),
            )
            for row in rows
        ],
    )


def _compared(rows: Sequence[Row], heads: dict[str, str]) -> list[Text]:
    compared = [row for row in rows if row.over_best is not None]
    if len(compared) < 2:
        return []
    per_micro_batch = any(row.micro_batch_ms is not None for row in compared)
    columns = (
        "<candidate",
        "runs",
        *(("ms a micro-batch",) if per_micro_batch else ()),
        "longer",
        "95 %",
        "<",
    )
    return table(
        columns,
        [
            (
                heads[row.label],
                str(row.runs),
                *((_or_none(row.micro_batch_ms, _ms),) if per_micro_batch else ()),
                _longer(row.over_best or 1.0),
                _or_none(row.over_best_ci, lambda ends: f"{_longer(ends[0])} to {_longer(ends[1])}"),
                _standing(row),
            )
            for row in compared
        ],
    )


def _standing(row: Row) -> str:
    if row.over_best == 1 and not row.tied and row.over_best_ci is None:
        return "shortest"
    return "not told apart" if row.tied else "slower"


def _modelled(rows: Sequence[Row], heads: dict[str, str]) -> list[Text]:
    shown = [row for row in rows if row.model_ms is not None or row.predicted_step_ms is not None]
    columns = ("<candidate", "comm", "model", "latency", "bandwidth-bound", "predicted step", "off")
    cells = [
        (
            heads[row.label],
            _or_none(row.comm_ms, _ms),
            _or_none(row.model_ms, _ms),
            _or_none(row.latency_share, percent),
            _or_none(row.bandwidth_bound, lambda bound: "yes" if bound else "no"),
            _or_none(row.predicted_step_ms, _ms),
            _off(row),
        )
        for row in shown
    ]
    told = [place for place in range(len(columns)) if any(row[place] != NONE for row in cells)]
    return (
        table([columns[place] for place in told], [[row[place] for place in told] for row in cells])
        if cells
        else []
    )


def _off(row: Row) -> str:
    if row.predicted_step_ms is None or row.step_ms is None:
        return NONE
    return f"{100 * (row.predicted_step_ms / row.step_ms - 1):+.1f} %"


def _problem(row: Row, width: int) -> list[Text]:
    if row.status == "measured":
        return []
    return paragraph(f"{row.label}: {row.message or 'not run'}", width)


def _remarks(sweep: Sweep) -> Iterator[str]:
    where = f"{plural(sweep.world_size, 'rank')} of {sweep.backend}, " if sweep.world_size else ""
    fabric = f", on an emulated fabric of {sweep.fabric}" if sweep.fabric else ""
    yield f"{where}{sweep.script}{fabric}; {plural(sweep.runs, 'run')} in random order (seed {sweep.seed})."
    if sweep.runs_saved is not None:
        yield f"Halving saved {plural(sweep.runs_saved, 'run')} of {sweep.runs_saved + sweep.runs}."
    if any(row.step_ms_ci_over is not None for row in sweep.rows):
        over = "steps of one run" if any(row.step_ms_ci_over == "steps" for row in sweep.rows) else "runs"
        yield f"step: without the profiler, and its 95 % interval by the spread between {over}; the rest is of recorded steps."
    if sweep.replaced_caps_mb:
        caps = ", ".join(f"{cap:g}" for cap in sweep.replaced_caps_mb)
        yield f"The script asks for a bucket cap of {caps} MiB; the sweep set its own in its place."
    if sweep.model is not None:
        yield (
            f"model: alpha {sweep.model.alpha_us:,.3g} us and B {sweep.model.bandwidth_gb_per_s:.3g} GB/s, by "
            f"{sweep.model.source}."
        )
    elif any(row.comm_ms is not None for row in sweep.rows):
        yield "model: these runs give no alpha and B that fit; pass --calibration with the file of `stepscope calibrate`."
    sources = sorted({row.predicted_from for row in sweep.rows if row.predicted_from is not None})
    if sources:
        links = sorted({row.predicted_link for row in sweep.rows if row.predicted_link is not None})
        yield (
            f"predicted: {clean(', '.join(sources))} replayed as `stepscope predict` does, with what a bucket takes by "
            f"{clean(', '.join(links))}."
        )


def _ms(value: float) -> str:
    return f"{value:,.{decimals((value,))}f}"


def _longer(ratio: float) -> str:
    return f"{100 * (ratio - 1):+,.1f} %"


def _or_none(value: Value | None, shown: Callable[[Value], str]) -> str:
    return NONE if value is None else shown(value)
