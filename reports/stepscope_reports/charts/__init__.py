"""The pictures of an audit, each one altair specification that gives HTML, SVG and PNG alike.

`PICTURES` has them by name, in the order in which a report shows them. Each is `draw(audit, width) -> Picture | None`: None
where the audit has nothing for it. `timeline` stands apart: a page has one that moves.
`style.svg` and `style.png` render a picture without a browser.
"""

from __future__ import annotations

from collections.abc import Callable

from stepscope.audit.result import Audit
from stepscope_reports.charts.bandwidth import bandwidth
from stepscope_reports.charts.buckets import buckets
from stepscope_reports.charts.ranks import ranks
from stepscope_reports.charts.spread import spread
from stepscope_reports.charts.style import NARROW, WIDE, Picture, png, svg
from stepscope_reports.charts.timeline import timeline
from stepscope_reports.charts.waterfall import waterfall

Draw = Callable[[Audit, int], Picture | None]

PICTURES: dict[str, Draw] = {
    "waterfall": waterfall,
    "buckets": buckets,
    "spread": spread,
    "ranks": ranks,
    "bandwidth": bandwidth,
}

__all__ = [
    "NARROW",
    "PICTURES",
    "WIDE",
    "Draw",
    "Picture",
    "bandwidth",
    "buckets",
    "png",
    "ranks",
    "spread",
    "svg",
    "timeline",
    "waterfall",
]
