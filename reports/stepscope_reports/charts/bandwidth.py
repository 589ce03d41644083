"""Bus bandwidth of each transfer against its size, beside the ring that was fitted to them."""

from __future__ import annotations

import altair as alt

from stepscope.audit.result import Audit, RingModel
from stepscope_reports import figures
from stepscope_reports.charts import style

MOST = 200
"""Points; of more transfers so many are drawn, evenly spread."""
_CURVE = 33
_HEIGHT = 230
_COLOURS = (style.BACKWARD, style.EXPOSED, style.HIDDEN, style.OPTIMIZER, style.NEUTRAL)


def bandwidth(audit: Audit, width: int = style.WIDE) -> style.Picture | None:
    """Points, and a line a ring model; None where no transfer's bandwidth is known."""
    points: list[style.Row] = [
        {"kind": figures.KINDS.get(one.kind, one.kind), "bytes": one.bytes, "rate": one.bus_gb_per_s}
        for one in audit.collectives
        if one.bytes and one.bus_gb_per_s
    ]
    if not points:
        return None
    points = points[:: -(-len(points) // MOST)]
    kinds = list(dict.fromkeys(str(point["kind"]) for point in points))
    lines = [row for model in audit.ring_models for row in _curve(model)]
    sizes = [float(row["bytes"]) for row in [*points, *lines]]
    most = max(float(row["rate"]) for row in [*points, *lines])
    x = alt.X(
        "bytes:Q",
        title="message size",
        scale=alt.Scale(type="log", domain=[min(sizes) / 1.3, max(sizes) * 1.3], nice=False),
        axis=alt.Axis(values=_ticks(min(sizes), max(sizes)), labelExpr=_label(), grid=False),
    )
    y = alt.Y(
        "rate:Q",
        title="bus bandwidth, GB/s",
        axis=alt.Axis(tickCount=5),
        scale=alt.Scale(domain=[0, 1.1 * most], nice=False),
    )
    colour = alt.Color(
        "kind:N",
        title=None,
        scale=alt.Scale(domain=kinds, range=list(_COLOURS[: len(kinds)])),
        legend=alt.Legend() if len(kinds) > 1 else None,
    )
    curve = style.chart(lines).mark_line(strokeWidth=2, strokeDash=[6, 3])
    dots = style.chart(points).mark_point(size=44, opacity=0.6, filled=True)
    layers = [dots.encode(x=x, y=y, color=colour)]
    if lines:
        layers.insert(0, curve.encode(x=x, y=y, color=colour, detail="model:N"))
    return style.finished(layers, width, _HEIGHT)


def _curve(model: RingModel) -> list[style.Row]:
    low, high = float(model.smallest_bytes), float(model.largest_bytes)
    low, high = (low / 2, high * 2) if high < 2 * low else (low, high)
    return [
        {
            "kind": figures.KINDS.get(model.kind, model.kind),
            "model": f"{model.kind} {model.group_size}",
            "bytes": count,
            "rate": figures.ring_bandwidth(model, count),
        }
        for count in (low * (high / low) ** (k / (_CURVE - 1)) for k in range(_CURVE))
    ]


def _ticks(low: float, high: float) -> list[int]:
    """Powers of four between the sizes, or of two where they are close."""
    powers = range(4, 44)
    few = [1 << power for power in powers if low / 1.3 <= (1 << power) <= high * 1.3]
    return few if len(few) <= 6 else [tick for tick in few if tick.bit_length() % 2 == 1]


def _label() -> str:
    """Vega's expression for a tick: `16 MiB`."""
    units = ("B", "KiB", "MiB", "GiB", "TiB")
    steps = [
        f"datum.value < {1 << (10 * (k + 1))} ? datum.value / {1 << (10 * k)} + ' {unit}'"
        for k, unit in enumerate(units)
    ]
    return " : ".join([*steps, "''"])
