"""The audit in one picture, as SVG or PNG: the verdict, a step on the clock, where exposed time went, and the buckets."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, BinaryIO, TextIO

from stepscope.audit.result import Audit
from stepscope_reports.extras import extra
from stepscope_reports.plain import clean
from stepscope_reports.terminal import headline, machines

if TYPE_CHECKING:
    import altair as alt

_TITLE_WIDTH = 88
"""Characters of a line of the title that are as wide as the charts below it."""

_LABELS = 150
"""Pixels for the labels at the left, so that the charts begin below each other."""

_TITLES = {
    "timeline": "One counted step",
    "waterfall": "Where exposed time went, in the average counted step",
    "buckets": "Buckets, from the start of backward (medians)",
}


def render_svg(audit: Audit, stream: TextIO) -> None:
    """Write the picture as an SVG document. Raises InputError where the extra `charts` is not installed."""
    with extra("charts"):
        import vl_convert
    stream.write(vl_convert.vegalite_to_svg(overview(audit).to_dict()))


def render_png(audit: Audit, stream: BinaryIO) -> None:
    """Write the picture as PNG, two pixels for one of the SVG's. Raises InputError as `render_svg` does."""
    with extra("charts"):
        import vl_convert
    stream.write(vl_convert.vegalite_to_png(overview(audit).to_dict(), scale=2))


def overview(audit: Audit) -> alt.VConcatChart:
    """The charts of a page that an audit has something for, one below the other under the verdict."""
    with extra("charts"):
        import altair as alt

        from stepscope_reports import charts
    drawn = {name: getattr(charts, name)(audit, charts.WIDE) for name in _TITLES}
    parts = [_part(picture, _TITLES[name]) for name, picture in drawn.items() if picture is not None]
    configs = [picture.config for picture in drawn.values() if picture is not None]
    title = alt.TitleParams(
        text=textwrap.wrap(clean(headline(audit.verdict)), _TITLE_WIDTH),
        subtitle=[machines(audit.ranks), ""],
        anchor="start",
        fontSize=15,
    )
    if not parts:  # an audit without a step has its verdict all the same
        nothing = alt.Chart(alt.InlineData(values=[{}])).mark_point(opacity=0)
        parts = [nothing.properties(width=charts.WIDE, height=1)]
    config = configs[0].copy(deep=False) if configs else alt.Config()
    config.axisY = alt.AxisConfig(minExtent=_LABELS)
    joint: alt.VConcatChart = alt.vconcat(
        *parts, title=title, config=config, spacing=24, background="white", padding=12
    ).resolve_scale(color="independent")
    return joint


def _part(picture: alt.LayerChart, title: str) -> alt.LayerChart:
    """A chart fit to be one of several: what holds for a whole picture is left to that."""
    import altair as alt

    part: alt.LayerChart = picture.copy(deep=False)
    for name in ("config", "autosize", "padding", "background"):
        part[name] = alt.Undefined
    return part.properties(title=alt.TitleParams(text=title, anchor="start", fontSize=13, frame="group"))
