"""One step on the clock: its compute by phase, and below it each collective, hidden, waiting for a rank, or exposed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import altair as alt

from stepscope.audit.result import Audit, Collective, Rank, Span, Step
from stepscope_reports import figures, lanes
from stepscope_reports.charts import style
from stepscope_reports.plain import clean

COLOURS = {
    "forward": style.FORWARD,
    "backward": style.BACKWARD,
    lanes.OTHER_COMPUTE: style.NEUTRAL,
    "optimizer": style.OPTIMIZER,
    "hidden behind compute": style.HIDDEN,
    "waiting for a rank": style.WAITING,
    "exposed": style.EXPOSED,
}
_ROW = 22


def timeline(
    audit: Audit, width: int = style.WIDE, shown: Sequence[tuple[Rank, Step]] | None = None
) -> style.Picture | None:
    """The typical counted step, or those that are `shown`, each on its own clock; None where there is none to draw."""
    typical = figures.typical_step(audit)
    chosen = shown if shown is not None else [typical] if typical else []
    rows: list[style.Row] = []
    for rank, step in chosen:
        prefix = f"rank {rank.rank}: " if len(chosen) > 1 else ""
        rows += ({**row, "lane": prefix + row["lane"]} for row in _rows(audit, rank, step))
    if not rows:
        return None
    order = list(dict.fromkeys(row["lane"] for row in rows))
    present = [what for what in COLOURS if any(row["what"] == what for row in rows)]
    bars = (
        style.chart(rows)
        .mark_bar(height=_ROW - 8)
        .encode(
            x=alt.X(
                "start:Q", title="ms of the step", scale=alt.Scale(nice=False), axis=alt.Axis(tickCount=6)
            ),
            x2="end:Q",
            y=alt.Y(
                "lane:N",
                sort=order,
                title=None,
                axis=alt.Axis(ticks=False, domain=False, grid=True, labelPadding=8),
            ),
            color=alt.Color(
                "what:N",
                title=None,
                scale=alt.Scale(domain=present, range=[COLOURS[what] for what in present]),
                legend=alt.Legend(symbolType="square"),
            ),
        )
    )
    return style.finished([bars], width, _ROW * len(order))


def _rows(audit: Audit, rank: Rank, step: Step) -> Iterator[style.Row]:
    if step.timeline is None:
        return
    for lane, spans in figures.compute_lanes(step.timeline).items():
        for span in spans:
            yield _row(lanes.lane_name(lane), lanes.lane_name(lane), span, step)
    collectives = figures.of_step(audit, rank, step)
    gradients = lanes.rows([one for one in collectives if one.gradient])
    for label, members in [*gradients, ("other", [one for one in collectives if not one.gradient])]:
        for one in members:
            for what, span in _parts(one, step.timeline.exposed):
                yield _row(clean(" ".join(label.split())), what, span, step)


def _row(lane: str, what: str, span: Span, step: Step) -> style.Row:
    return {"lane": lane, "what": what, "start": span[0] - step.start_ms, "end": span[1] - step.start_ms}


def _parts(one: Collective, exposed: Sequence[Span]) -> Iterator[tuple[str, Span]]:
    """The collective from end to end, cut where it starts to be exposed or to be hidden; what is drawn last lies on top."""
    start, end = one.start_ms, one.start_ms + one.duration_ms
    yield "hidden behind compute", (start, end)
    for span in lanes.within(exposed, (start, end)):
        yield "exposed", span
    if one.wait_ms:
        for span in lanes.within(exposed, (start, start + one.wait_ms)):
            yield "waiting for a rank", span
