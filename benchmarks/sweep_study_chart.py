"""The study of bucket caps as pictures: a step's time by cap, measured as points, predicted as lines."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import altair as alt

from stepscope_reports.charts import style

_HEIGHT = 300
_COLOURS = [style.EXPOSED, style.BACKWARD, style.HIDDEN]


def pictures(study: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """A file name and its SVG for each number of ranks."""
    for ranks in sorted({cell["ranks"] for cell in study["cells"]}):
        rows = [
            {
                "rate": cell["rate"],
                "cap": row["bucket_cap_mb"],
                "step": row["step_ms"],
                "low": (row.get("step_ms_ci") or [row["step_ms"]] * 2)[0],
                "high": (row.get("step_ms_ci") or [row["step_ms"]] * 2)[1],
                "predicted": row.get("predicted_step_ms"),
            }
            for cell in study["cells"]
            if cell["ranks"] == ranks and cell["held"]
            for row in cell["rows"]
        ]
        if rows:
            yield f"step-{ranks}-ranks.svg", style.svg(_picture(rows))


def _picture(rows: list[dict[str, Any]]) -> style.Picture:
    x = alt.X(
        "cap:Q",
        title="bucket cap, MiB",
        scale=alt.Scale(type="log"),
        axis=alt.Axis(values=sorted({row["cap"] for row in rows}), format="~g", grid=False),
    )
    ends = [row[name] for row in rows for name in ("low", "high", "predicted") if row[name] is not None]
    scale = alt.Scale(domain=[0, 1.05 * max(ends)], nice=False)
    y = alt.Y("step:Q", title="step, ms (points: measured; lines: predicted)", scale=scale)
    rates = list(dict.fromkeys(row["rate"] for row in rows))
    colour = alt.Color("rate:N", title="link", sort=rates, scale=alt.Scale(domain=rates, range=_COLOURS))
    base = style.chart(rows)
    return style.finished(
        [
            base.mark_line(strokeDash=[5, 4]).encode(x=x, y=alt.Y("predicted:Q", scale=scale), color=colour),
            base.mark_rule(strokeWidth=1.5).encode(
                x=x, y=alt.Y("low:Q", scale=scale), y2="high:Q", color=colour
            ),
            base.mark_circle(size=70, opacity=1).encode(x=x, y=y, color=colour),
        ],
        style.WIDE,
        _HEIGHT,
    )
