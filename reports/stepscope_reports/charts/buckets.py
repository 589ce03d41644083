"""When each bucket was ready, when it ran, and how much of it was hidden: medians from the start of backward."""

from __future__ import annotations

import altair as alt

from stepscope.audit.result import Audit, Bucket
from stepscope.units import size
from stepscope_reports.charts import style

MOST = 24
"""Buckets with a row of their own; of more, the first and the last are drawn, and a report says so."""


def drawn(buckets: list[Bucket]) -> list[Bucket]:
    """The buckets that the picture shows."""
    return buckets if len(buckets) <= MOST else [*buckets[: MOST // 2], *buckets[-MOST // 2 :]]


def buckets(audit: Audit, width: int = style.WIDE) -> style.Picture | None:
    """A row a bucket: a thin line from ready to started, then its run, split by share into hidden and exposed."""
    rows = [row for bucket in drawn(audit.buckets) for row in _rows(bucket)]
    if not rows:
        return None
    names = _names(audit.buckets)
    y = alt.Y(
        "bucket:N",
        scale=alt.Scale(domain=names),
        title=None,
        axis=alt.Axis(ticks=False, domain=False, labelPadding=8),
    )
    kinds = ["ready, not started", "hidden by backward", "by other compute", "exposed"]
    colours = [style.NEUTRAL, style.HIDDEN, style.FORWARD, style.EXPOSED]
    present = [kind for kind in kinds if any(row["kind"] == kind for row in rows)]
    colour = alt.Color(
        "kind:N",
        title=None,
        scale=alt.Scale(domain=present, range=[colours[kinds.index(kind)] for kind in present]),
    )
    x = alt.X("start:Q", title="ms from the start of backward", axis=alt.Axis(tickCount=6))
    base = style.chart(rows)
    waiting = base.transform_filter("datum.kind == 'ready, not started'").mark_bar(height=2)
    running = base.transform_filter("datum.kind != 'ready, not started'").mark_bar(height=14, cornerRadius=1)
    layers = [mark.encode(x=x, x2="end:Q", y=y, color=colour) for mark in (waiting, running)]
    return style.finished(layers, width, max(22 * len(names), 44))


def _name(bucket: Bucket) -> str:
    return f"{bucket.bucket}" if bucket.bytes is None else f"{bucket.bucket}: {size(bucket.bytes)}"


def _names(buckets: list[Bucket]) -> list[str]:
    names = [_name(bucket) for bucket in drawn(buckets)]
    left_out = len(buckets) - len(names)
    return [*names[: MOST // 2], f"{left_out} more", *names[MOST // 2 :]] if left_out else names


def _rows(bucket: Bucket) -> list[style.Row]:
    label = _name(bucket)
    hidden = bucket.hidden_share * bucket.duration_ms
    exposed = min(bucket.exposed_ms, bucket.duration_ms - hidden)
    other = bucket.duration_ms - hidden - exposed
    rows: list[style.Row] = []
    time = bucket.start_ms
    if bucket.ready_ms is not None and bucket.ready_ms < bucket.start_ms:
        rows.append({"bucket": label, "kind": "ready, not started", "start": bucket.ready_ms, "end": time})
    for kind, length in (
        ("hidden by backward", hidden),
        ("by other compute", other),
        ("exposed", exposed),
    ):
        if length > 1e-3 * bucket.duration_ms:
            rows.append({"bucket": label, "kind": kind, "start": time, "end": time + length})
            time += length
    return rows
