"""The study of large jobs as a page and as curves."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import altair as alt

from stepscope_reports.charts import style

RANKS_AIM = {"seconds": 60.0, "peak_mb": 2000.0}
"""Of 1,024 ranks."""
TRACE_AIM_MB = 1500.0
"""Of one trace of 2 GB."""
_HEIGHT = 220

Study = dict[str, Any]


def page(study: Study) -> str:
    """The study in Markdown."""
    cases = study["cases"]
    lines = [
        "# How large a job can be",
        "",
        "Each job is simulated: 16 collectives x 3 steps a rank, and one rank that is 20 ms late in each step. `stepscope audit`",
        "reads and audits it in a process of its own, with the traces in the page cache. Memory is the peak of all processes",
        f"of a run together. Made by `{' '.join(study['command'])}` on {study['cores']} cores, engine `{study['engine']}`;",
        f"times are medians of {study['runs']} runs, memory is the most of them.",
        "",
        "| | files, MB | text, MB | wall, s | CPU, s | memory, MB | the late rank is named |",
        "|---|---:|---:|---:|---:|---:|---|",
        *(_row(case) for case in cases),
        "",
        *(_verdicts(cases)),
        "",
        "![wall time by number of ranks](seconds.svg)",
        "",
        "![memory by number of ranks](memory.svg)",
        "",
        "Of more than 64 ranks, 64 are replayed (those that the others wait for longest, and others evenly spread): from there",
        "both curves grow by what is measured of a rank alone. See [large traces](../../../docs/large-traces.md).",
    ]
    return "\n".join(lines) + "\n"


def _row(case: dict[str, Any]) -> str:
    named = {None: "", True: "yes", False: "**no**"}[case["late_rank_named"]]
    cells = [
        case["name"],
        f"{case['trace_bytes'] / 1e6:,.1f}",
        f"{case['text_bytes'] / 1e6:,.0f}",
        f"{case['seconds']:.1f}",
        f"{case['cpu_seconds']:.1f}",
        f"{case['peak_mb']:,.0f}",
        named,
    ]
    return f"| {' | '.join(cells)} |"


def _verdicts(cases: list[dict[str, Any]]) -> Iterator[str]:
    """What was aimed at, where it was measured."""
    most = max(cases, key=lambda case: case["ranks"])
    if most["ranks"] >= 1024:
        held = most["seconds"] <= RANKS_AIM["seconds"] and most["peak_mb"] <= RANKS_AIM["peak_mb"]
        yield f"1,024 ranks in under 60 s and 2 GB: {'held' if held else '**not held**'}."
    large = [case for case in cases if case["ranks"] == 1 and case["text_bytes"] >= 2e9]
    if large:
        held = all(case["peak_mb"] <= TRACE_AIM_MB for case in large)
        yield f"One trace of 2 GB inside 1.5 GB of memory: {'held' if held else '**not held**'}."


def pictures(study: Study) -> Iterator[tuple[str, str]]:
    """A file name and its SVG for each curve over the number of ranks."""
    rows = [
        case for case in study["cases"] if case["late_rank_named"] is not None or case["name"] == "1 ranks"
    ]
    if len(rows) > 1:
        yield "seconds.svg", style.svg(_curve(rows, "seconds", "wall time, s"))
        yield "memory.svg", style.svg(_curve(rows, "peak_mb", "memory, MB"))


def _curve(rows: list[dict[str, Any]], figure: str, title: str) -> style.Picture:
    shown = [{"ranks": row["ranks"], "value": row[figure]} for row in rows]
    x = alt.X(
        "ranks:Q",
        title="ranks",
        scale=alt.Scale(domainMin=0, nice=False),
        axis=alt.Axis(values=[row["ranks"] for row in rows if row["ranks"] >= 64], format=",", grid=False),
    )
    y = alt.Y("value:Q", title=title, scale=alt.Scale(domainMin=0))
    base = style.chart(shown)
    return style.finished(
        [
            base.mark_line(color=style.BACKWARD).encode(x=x, y=y),
            base.mark_circle(size=60, opacity=1, color=style.BACKWARD).encode(x=x, y=y),
        ],
        style.WIDE,
        _HEIGHT,
    )
