"""Where the exposed time of the average counted step went, part by part, and what of it communication costs."""

from __future__ import annotations

import altair as alt

from stepscope.audit.result import Audit
from stepscope.units import decimals
from stepscope_reports import figures
from stepscope_reports.charts import style

_COLOURS = {"peer_wait_ms": style.WAITING, "host_starved_ms": style.NEUTRAL, "unattributed_ms": style.NEUTRAL}
_ROW = 26


def waterfall(audit: Audit, width: int = style.WIDE) -> style.Picture | None:
    """The parts one after the other, then their sum and the cost; None without exposed time."""
    rows = _rows(audit)
    if not rows:
        return None
    y = alt.Y("part:N", sort=None, title=None, axis=alt.Axis(ticks=False, domain=False, labelPadding=8))
    end = max(row["end"] for row in rows) * 1.18  # room for the figures
    x = alt.X(
        "start:Q",
        title="ms of the average counted step",
        scale=alt.Scale(domain=[0, end], nice=False),
        axis=alt.Axis(tickCount=5),
    )
    base = style.chart(rows)
    bars = base.mark_bar(height=16, cornerRadius=2).encode(
        x=x, x2="end:Q", y=y, color=alt.Color("colour:N", scale=None)
    )
    labels = base.mark_text(align="left", dx=6).encode(x=alt.X("end:Q"), y=y, text="text:N")
    return style.finished([bars, labels], width, _ROW * len(rows))


def _rows(audit: Audit) -> list[style.Row]:
    mean = figures.average([step for _, step in figures.counted(audit)])
    if mean is None or not mean.exposed:
        return []
    places, rows, start = decimals((mean.exposed,)), [], 0.0

    def row(part: str, begin: float, end: float, colour: str) -> style.Row:
        text = f"{end - begin:,.{places}f}"
        return {"part": part, "start": begin, "end": end, "colour": colour, "text": text}

    for name, (label, _) in figures.WATERFALL.items():
        length = mean.waterfall.get(name)
        if length:
            rows.append(row(label, start, start + length, _COLOURS.get(name, style.EXPOSED)))
            start += length
    rows.append(row("exposed, in all", 0.0, mean.exposed, style.INK))
    if mean.cost is not None:
        rows.append(row("cost of communication", 0.0, mean.cost, style.INK))
    return rows
