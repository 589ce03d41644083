"""What communication cost in each step of each rank, with the verdict's median, its interval and the threshold."""

from __future__ import annotations

import altair as alt

from stepscope.audit.result import Audit
from stepscope.units import percent
from stepscope_reports import figures
from stepscope_reports.charts import style

_HEIGHT = 190


def spread(audit: Audit, width: int = style.WIDE) -> style.Picture | None:
    """A point a rank and step; None where no step's cost is known."""
    points = [
        {"step": step.step, "share": step.cost_ms / step.wall_ms}
        for _, step in figures.counted(audit)
        if step.cost_ms is not None
    ]
    if not points:
        return None
    verdict, threshold = audit.verdict, audit.verdict.thresholds.cost_share
    shown = [point["share"] for point in points] + [threshold]
    scale = alt.Scale(domain=[0, 1.15 * max(shown)], nice=False)
    y = alt.Y("share:Q", title="cost of communication, of the step", scale=scale, axis=_percent())
    layers = []
    if verdict.cost_share_ci is not None:
        low, high = verdict.cost_share_ci
        band = style.chart([{"low": low, "high": high}])
        layers.append(
            band.mark_rect(color=style.BACKWARD, opacity=0.16).encode(
                y=alt.Y("low:Q", scale=scale), y2="high:Q"
            )
        )
    layers += _line(threshold, f"threshold {percent(threshold)}", style.EXPOSED, [5, 4], scale)
    if verdict.cost_share is not None:
        layers += _line(verdict.cost_share, "", style.BACKWARD, [1, 0], scale)
    x = alt.X("step:O", title="step", axis=alt.Axis(labelAngle=0, labelOverlap=True, grid=False))
    layers.append(
        style.chart(points)
        .mark_circle(size=46, color=style.BACKWARD, opacity=0.75, stroke="white", strokeWidth=0.5)
        .encode(x=x, y=y)
    )
    return style.finished(layers, width, _HEIGHT)


def _percent() -> alt.Axis:
    return alt.Axis(format=".1~%", tickCount=5)


def _line(share: float, text: str, colour: str, dash: list[float], scale: alt.Scale) -> list[alt.Chart]:
    base = style.chart([{"share": share, "text": text}])
    y = alt.Y("share:Q", scale=scale)
    line = base.mark_rule(color=colour, strokeDash=dash, strokeWidth=1.5).encode(y=y)
    if not text:
        return [line]
    label = base.mark_text(align="right", baseline="bottom", dy=-4, color=colour)
    return [line, label.encode(y=y, x=alt.value("width"), text="text:N")]
