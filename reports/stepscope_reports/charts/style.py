"""What all pictures share: colours, type, and how one becomes SVG or PNG.

The colours of hidden, waiting and exposed are those of Okabe and Ito, "Color universal design", 2008, which the colour-blind
tell apart; each differs in lightness as well.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt
import vl_convert

WIDE, NARROW = 680, 320
"""Widths in pixels: a page's column, and a phone's."""

INK, MUTED, LINE = "#1c2330", "#5b6675", "#dfe3ea"
HIDDEN, WAITING, EXPOSED, NEUTRAL = "#009e73", "#e6a417", "#d55e00", "#8b95a5"
FORWARD, BACKWARD, OPTIMIZER = "#9dbbe6", "#4673c4", "#b394d6"
FONT = "Helvetica, Arial, sans-serif"

Picture = alt.LayerChart
Row = Mapping[str, Any]


def chart(rows: Sequence[Row]) -> alt.Chart:
    """An empty chart of some rows of data."""
    return alt.Chart(alt.InlineData(values=[dict(row) for row in rows]))


def finished(layers: Sequence[alt.Chart], width: int, height: int) -> Picture:
    """The layers as one picture that is `width` pixels wide with its labels; `height` is that of the plot alone."""
    picture: Picture = (
        alt.layer(*layers)
        .properties(
            width=width,
            height=height,
            background="transparent",
            padding={"left": 2, "right": 6, "top": 4, "bottom": 6},
            autosize=alt.AutoSizeParams(type="fit-x", contains="padding"),
        )
        .configure(font=FONT, aria=False)
        .configure_view(strokeWidth=0)
        .configure_axis(
            labelColor=MUTED,
            titleColor=MUTED,
            labelFontSize=13,
            titleFontSize=13,
            titleFontWeight="normal",
            gridColor=LINE,
            domainColor=LINE,
            tickColor=LINE,
            labelLimit=260,
            labelSeparation=6,
        )
        .configure_legend(
            labelColor=MUTED,
            labelFontSize=13,
            titleColor=MUTED,
            titleFontSize=13,
            titleFontWeight="normal",
            orient="top",
            symbolSize=110,
            symbolOpacity=1,
            offset=8,
            columns=1 if width < WIDE / 2 else 4,
        )
        .configure_text(font=FONT, fontSize=13, color=INK)
    )
    return picture


def svg(picture: Picture) -> str:
    """The picture as an SVG document, its background left out."""
    return str(vl_convert.vegalite_to_svg(picture.to_dict()))


def png(picture: Picture, scale: float = 2.0, background: str = "white") -> bytes:
    """The picture as PNG, `scale` pixels for one of the SVG's."""
    shown = picture.properties(background=background)
    return bytes(vl_convert.vegalite_to_png(shown.to_dict(), scale=scale))
