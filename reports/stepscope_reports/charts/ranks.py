"""How long each rank waited for the others in each step: the row that stays faint is the rank that the others wait for."""

from __future__ import annotations

import altair as alt

from stepscope.audit.result import Audit
from stepscope_reports import figures
from stepscope_reports.charts import style

MOST = 64
"""Rows; of more ranks those that the others waited for are drawn, and the first."""


def ranks(audit: Audit, width: int = style.WIDE) -> style.Picture | None:
    """A heat map of ranks and counted steps; None where waiting could not be told from transfer."""
    cells = figures.waiting(audit)
    if not cells:
        return None
    late = {row["rank"]: row["last_share"] for row in audit.stragglers if row["total_ms"] > 0}
    most = max(late.values(), default=0.0)
    names = {
        rank: f"rank {rank}, last in {100 * share:.0f} %"
        if share is not None and share == most
        else f"rank {rank}"
        for rank in {cell.rank for cell in cells}
        for share in [late.get(rank)]
    }
    drawn = {audit.ranks[place].rank for place in figures.shown(audit, MOST)}
    shown = sorted(rank for rank in names if rank in drawn)
    rows = [
        {"rank": names[cell.rank], "step": cell.step, "waited": cell.waited_ms}
        for cell in cells
        if cell.rank in shown
    ]
    height = 24 if len(shown) <= 16 else 12
    y = alt.Y(
        "rank:N",
        sort=[names[rank] for rank in shown],
        title=None,
        axis=alt.Axis(ticks=False, domain=False, labelPadding=6),
    )
    x = alt.X(
        "step:O",
        title="step",
        scale=alt.Scale(paddingInner=0.02),
        axis=alt.Axis(labelAngle=0, labelOverlap=True, ticks=False, domain=False),
    )
    strength = alt.Opacity(
        "waited:Q",
        scale=alt.Scale(range=[0.07, 1.0], domainMin=0),
        legend=alt.Legend(
            title="ms waited for other ranks", symbolType="square", tickCount=4, symbolFillColor=style.WAITING
        ),
    )
    layer = (
        style.chart(rows).mark_rect(cornerRadius=2, color=style.WAITING).encode(x=x, y=y, opacity=strength)
    )
    return style.finished([layer], width, height * len(shown))
