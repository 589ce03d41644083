"""One step drawn as lanes of text: compute above, a row for each gradient collective below, one time axis.

A cell of a compute lane is as high as the share of its time that was busy. A cell of a collective shows whether
compute ran beside it; `waiting` is the time between the bucket's last gradient and its start.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rich.text import Text

from stepscope.audit.result import Collective, Span, Step
from stepscope.units import decimals, size
from stepscope_reports.figures import compute_lanes

ROWS = 12
"""Most rows of gradient collectives; the ones in the middle share a row beyond it."""

_LABEL = 19
_STYLES = {"forward": "blue", "backward": "cyan", "other": "dim", "optimizer": "magenta"}
OTHER_COMPUTE = "other compute"
"""The lane of compute of no phase; collectives that carry no gradients have one called "other"."""


@dataclass(frozen=True)
class Glyphs:
    """The characters of a drawing; levels rise from nearly idle to all busy."""

    levels: str
    hidden: str
    exposed: str
    waiting: str
    axis: str
    tick: str


UNICODE = Glyphs(levels="▁▂▃▄▅▆▇█", hidden="░", exposed="▓", waiting="·", axis="─", tick="┬")
ASCII = Glyphs(levels="._:=#", hidden="-", exposed="X", waiting="'", axis="-", tick="+")


@dataclass(frozen=True)
class Axis:
    """`cells` cells that share the time from start to end, in ms."""

    start: float
    end: float
    cells: int

    def cell(self, time: float) -> float:
        """Where a time lies, in cells; 0 and `cells` at the ends."""
        return (time - self.start) / (self.end - self.start) * self.cells

    def busy(self, spans: Iterable[Span]) -> list[float]:
        """The share of each cell that the spans fill, at most 1."""
        shares = [0.0] * self.cells
        for start, end in spans:
            first, last = self.cell(start), self.cell(end)
            for index in range(max(int(first), 0), min(math.ceil(last), self.cells)):
                shares[index] += max(min(last, index + 1) - max(first, index), 0.0)
        return [min(share, 1.0) for share in shares]

    def touched(self, span: Span) -> range:
        """The cells of one span: those it fills at least half, or the one that holds its middle."""
        first, last = (min(max(self.cell(time), 0.0), self.cells) for time in span)
        begin, end = round(first), round(last)
        middle = min(int((first + last) / 2), self.cells - 1)
        return range(begin, end) if end > begin else range(middle, middle + 1)


def draw(step: Step, collectives: Sequence[Collective], width: int, glyphs: Glyphs) -> list[Text]:
    """The lines of the picture, `width` wide; empty where there is nothing to draw."""
    if step.timeline is None:
        return []
    lanes = [
        (lane_name(name), _STYLES[name], _moved(spans, step))
        for name, spans in compute_lanes(step.timeline).items()
    ]
    spans = [_span(one, step) for one in collectives]
    every = [(0.0, step.wall_ms), *spans, *(span for *_, lane in lanes for span in lane)]
    axis = Axis(min(start for start, _ in every), max(end for _, end in every), width - _LABEL)
    if axis.end <= axis.start:
        return []
    lines = [_line(name, _compute(axis, lane, style, glyphs)) for name, style, lane in lanes if lane]
    gradients = [one for one in collectives if one.gradient]
    for label, members in [*rows(gradients), ("other", [one for one in collectives if not one.gradient])]:
        if members:
            lines.append(_line(label, _communication(axis, members, step, glyphs)))
    return [*_scale(axis, glyphs), *lines] if lines else []


def lane_name(name: str) -> str:
    """What a lane of compute is called beside lanes of collectives."""
    return OTHER_COMPUTE if name == "other" else name


def legend(glyphs: Glyphs, *, communication: bool) -> Text:
    """What the characters mean; those of communication only where there is any."""
    parts = [(f"{glyphs.levels[-1]} compute", "cyan")]
    if communication:
        parts += [
            (f"{glyphs.hidden} hidden behind compute", "green"),
            (f"{glyphs.exposed} exposed", "red"),
            (f"{glyphs.waiting} ready, not started", "dim"),
        ]
    return Text("   ").join(Text(text, style) for text, style in parts)


def _span(one: Collective, step: Step) -> Span:
    """A collective's interval on its step's own time axis."""
    start = one.start_ms - step.start_ms
    return start, start + one.duration_ms


def _moved(spans: Sequence[Span], step: Step) -> list[Span]:
    """Spans on their step's own time axis."""
    return [(start - step.start_ms, end - step.start_ms) for start, end in spans]


def _line(label: str, cells: Text) -> Text:
    return Text(f"{label[: _LABEL - 1]:<{_LABEL}}").append_text(cells)


def rows(gradients: Sequence[Collective]) -> list[tuple[str, Sequence[Collective]]]:
    """Label and members of each row: the first and the last buckets each on their own, the middle together."""
    labels = [
        _bucket(index) + (f"{size(one.bytes):>8}" if one.bytes is not None else "")
        for index, one in enumerate(gradients)
    ]
    single: list[tuple[str, Sequence[Collective]]] = [
        (label, [one]) for label, one in zip(labels, gradients, strict=True)
    ]
    if len(single) <= ROWS:
        return single
    head, tail = ROWS // 2, ROWS - ROWS // 2 - 1
    middle = gradients[head:-tail]
    return [*single[:head], (f"+{len(middle)} more", middle), *single[-tail:]]


def _bucket(index: int) -> str:
    """Ten characters that leave a space before the size."""
    return f"{f'bucket {index}' if index < 100 else f'bkt. {index}':<10}"


def _compute(axis: Axis, spans: Sequence[Span], style: str, glyphs: Glyphs) -> Text:
    top = len(glyphs.levels) - 1
    return Text(
        "".join(glyphs.levels[round(share * top)] if share > 0 else " " for share in axis.busy(spans)),
        style,
    )


def _communication(axis: Axis, members: Sequence[Collective], step: Step, glyphs: Glyphs) -> Text:
    """A cell of a collective is exposed where most of its part of the cell is."""
    cells = [" "] * axis.cells
    for one in members:
        if one.ready_ms is not None and one.ready_ms < one.start_ms:
            start, _ = _span(one, step)
            for index in range(round(axis.cell(one.ready_ms - step.start_ms)), round(axis.cell(start))):
                cells[max(index, 0)] = glyphs.waiting
    exposed = _moved(step.timeline.exposed, step) if step.timeline else []
    for one in members:
        span = _span(one, step)
        running = axis.busy([span])
        bare = axis.busy(within(exposed, span))
        for index in axis.touched(span):
            cells[index] = glyphs.exposed if bare[index] > running[index] / 2 else glyphs.hidden
    styles = {glyphs.hidden: "green", glyphs.exposed: "red", glyphs.waiting: "dim"}
    text = Text()
    for character in cells:
        text.append(character, styles.get(character, ""))
    return text


def within(spans: Sequence[Span], bounds: Span) -> list[Span]:
    """The parts of the spans that lie inside the bounds."""
    low, high = bounds
    return [(max(start, low), min(end, high)) for start, end in spans if end > low and start < high]


def _scale(axis: Axis, glyphs: Glyphs) -> list[Text]:
    """Tick labels and the axis line below them."""
    step = _tick_step(axis.end - axis.start)
    places = decimals((step * 10,)) if step < 1 else 0
    labels, line = [" "] * axis.cells, [glyphs.axis] * axis.cells
    time, free = math.ceil(axis.start / step) * step, 0
    while time < axis.end:
        index, label = int(axis.cell(time) + 1e-9), f"{time + 0.0:,.{places}f}"
        line[index] = glyphs.tick
        if index >= free and index + len(label) <= axis.cells:
            labels[index : index + len(label)] = label
            free = index + len(label) + 1
        time += step
    return [_line("ms", Text("".join(labels))), _line("", Text("".join(line), "dim"))]


def _tick_step(length: float) -> float:
    """A round step that cuts the length into three to eight parts."""
    magnitude: float = 10.0 ** math.floor(math.log10(length))
    for factor in (0.2, 0.5, 1.0):
        if length / (factor * magnitude) <= 7.5:
            return factor * magnitude
    return 2 * magnitude
