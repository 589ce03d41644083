"""The tables of the page. Figures of the audit are quoted with their path; sums over it carry their name instead."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from stepscope.audit.result import Audit
from stepscope.units import decimals, in_column, milliseconds, percent, size
from stepscope_reports import figures, tables
from stepscope_reports.html.quoted import NOT_KNOWN, Path, Quoted

MOST_ROWS = 120
_MOST_CLOCKS = 16
"""Rows of a table; of more, the first are shown and the rest counted."""

_FEW_BUCKETS = 24


@dataclass(frozen=True)
class Table:
    """Columns (a leading "<" puts one to the left) and rows of text; `more` rows were left out."""

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    more: int = 0

    def cut(self, rows: int) -> tuple[Table, Table | None]:
        """The first rows, and the others where there are any."""
        if len(self.rows) <= rows:
            return self, None
        return Table(self.columns, self.rows[:rows]), Table(self.columns, self.rows[rows:], self.more)


def derived(name: str, value: float | None, text: str) -> Markup:
    """A figure that the page works out from the audit, under its own name."""
    if value is None:
        return Markup(NOT_KNOWN)
    return Markup('<data value="{}" data-figure="{}">{}</data>').format(repr(value), name, text)


def average(audit: Audit) -> list[tuple[int, str, Markup, str]]:
    """Rows of the average counted step: depth, what, ms, and its share of what."""
    mean = figures.average([step for _, step in figures.counted(audit)])
    if mean is None:
        return []
    rows: list[tuple[int, str, float | None, str, float | None, str]] = [
        (0, "step", mean.wall, "wall", None, ""),
        (0, "compute", mean.compute, "compute", mean.wall, "of the step"),
    ]
    if mean.comm:
        grad = mean.grad_comm
        rows += [
            (0, "communication", mean.comm, "comm", mean.wall, "of the whole step, mean"),
            (1, "gradients", grad, "grad_comm", mean.comm, "of communication"),
            (
                2,
                "hidden by backward",
                mean.grad_hidden_backward,
                "grad_hidden_backward",
                grad,
                "of gradients",
            ),
            (2, "hidden by other compute", mean.grad_hidden_other, "grad_hidden_other", grad, "of gradients"),
            (2, "exposed", mean.grad_exposed, "grad_exposed", grad, "of gradients"),
            (2, "floor", mean.floor, "floor", None, "these buckets can do no better"),
            (2, "excess", mean.excess, "excess", None, "a better schedule could win it back"),
            (0, "exposed, all communication", mean.exposed, "exposed", mean.wall, "of the step"),
            (0, "cost of communication", mean.cost, "cost", mean.wall, "of the step, mean"),
        ]
    places = decimals([mean.wall])
    return [
        (depth, label, derived(f"average.{name}", value, in_column(value, places)), _of(value, whole, remark))
        for depth, label, value, name, whole, remark in rows
        if value is not None
    ]


def _of(value: float, whole: float | None, remark: str) -> str:
    return f"{percent(value / whole)} {remark}" if whole else remark


def waterfall(audit: Audit) -> list[tuple[str, Markup, str]]:
    """The parts of the average exposed time: label, ms, what to know of it."""
    mean = figures.average([step for _, step in figures.counted(audit)])
    if mean is None:
        return []
    places = decimals([mean.exposed])
    unsure = "" if "peer_wait_ms" in mean.waterfall else ", or waiting"
    return [
        (
            label,
            derived(
                f"average.waterfall.{name}", mean.waterfall[name], in_column(mean.waterfall[name], places)
            ),
            remark + (unsure if name in figures.MAY_BE_WAITING else ""),
        )
        for name, (label, remark) in figures.WATERFALL.items()
        if mean.waterfall.get(name)
    ]


def buckets(audit: Audit, quoted: Quoted) -> tuple[Table, Table | None]:
    """Each bucket's medians; the first rows, and the others apart."""
    times = ("ready_ms", "launch_ms", "start_ms", "duration_ms", "exposed_ms")
    write = quoted.times(("buckets", k, name) for k in range(len(audit.buckets)) for name in times)
    rows: list[tuple[str, ...]] = [
        (
            quoted.count("buckets", k, "bucket"),
            quoted.size("buckets", k, "bytes"),
            quoted.count("buckets", k, "parameters"),
            *(write("buckets", k, name) for name in times[:-1]),
            quoted.percent("buckets", k, "hidden_share"),
            write("buckets", k, "exposed_ms"),
        )
        for k in range(len(audit.buckets))
    ]
    columns: tuple[str, ...] = (
        "bucket",
        "size",
        "parameters",
        "ready",
        "launched",
        "started",
        "took",
        "hidden",
        "exposed",
    )
    if any(one.passes > 1 for one in audit.buckets):
        columns = (*columns, "passes")
        rows = [(*row, quoted.count("buckets", k, "passes")) for k, row in enumerate(rows)]
    return Table(columns, rows[:MOST_ROWS], max(len(rows) - MOST_ROWS, 0)).cut(_FEW_BUCKETS)


def steps(audit: Audit, quoted: Quoted) -> tuple[Table, Table | None]:
    """A row a counted step of a rank."""
    paths: list[tuple[str, Path]] = [
        (_rank(audit, place), ("ranks", place, "steps", number))
        for place in figures.shown(audit, MOST_ROWS)
        for number, step in enumerate(audit.ranks[place].steps)
        if step.valid
    ]
    every = len(figures.counted(audit))
    shown = paths[:MOST_ROWS]
    write = quoted.times((*path, "wall_ms") for _, path in shown)
    rows = [
        (
            name,
            quoted.count(*path, "step"),
            write(*path, "wall_ms"),
            write(*path, "comm_ms"),
            write(*path, "grad", "comm_ms"),
            _overlap(quoted, path),
            write(*path, "exposed_ms"),
            write(*path, "grad", "floor_ms"),
            write(*path, "cost_ms"),
        )
        for name, path in shown
    ]
    columns = ("rank", "step", "took", "communication", "gradients", "overlap", "exposed", "floor", "cost")
    return Table(columns, rows, every - len(shown)).cut(_FEW_BUCKETS)


def _overlap(quoted: Quoted, path: Path) -> Markup:
    hidden, whole = (
        quoted.value((*path, "grad", "hidden_backward_ms")),
        quoted.value((*path, "grad", "comm_ms")),
    )
    share = hidden / whole if hidden is not None and whole else None
    return derived("overlap", share, percent(share) if share is not None else "")


def _rank(audit: Audit, place: int) -> str:
    number = audit.ranks[place].rank
    return NOT_KNOWN if number is None else str(number)


def gained(audit: Audit) -> list[Markup]:
    """What the recommended bucket size gains, part by part, as the terminal says it."""
    one = audit.recommendation
    parts = tables.gained(one) if one is not None else []
    return [derived("recommendation.part", ms, milliseconds(ms)) + f" {words}" for ms, words in parts]


def stragglers(audit: Audit, quoted: Quoted) -> Table:
    """Whom the others wait for, the longest first."""
    late = [k for k, row in enumerate(audit.stragglers) if row["total_ms"] > 0]
    write = quoted.times(("stragglers", k, "total_ms") for k in late)
    rows = [
        (
            quoted.count("stragglers", k, "rank"),
            quoted.percent("stragglers", k, "last_share"),
            quoted.count("stragglers", k, "collectives"),
            write("stragglers", k, "lateness_ms"),
            write("stragglers", k, "total_ms"),
        )
        for k in late[:MOST_ROWS]
    ]
    columns = ("rank", "last in", "of collectives", "by, median ms", "the others waited, ms")
    return Table(columns, rows, max(len(late) - MOST_ROWS, 0))


def clocks(audit: Audit, quoted: Quoted) -> Table:
    """Each host's clock against the first one's, the furthest first."""
    far = sorted(range(len(audit.clocks)), key=lambda k: -abs(audit.clocks[k]["offset_ms"]))
    shown = far[:_MOST_CLOCKS]
    rows = [
        (
            str(audit.clocks[k]["host"]),
            quoted.number("clocks", k, "offset_ms"),
            quoted.number("clocks", k, "drift_ppm"),
            quoted.number("clocks", k, "residual_ms"),
            quoted.count("clocks", k, "pairs"),
        )
        for k in shown
    ]
    columns = ("<host", "offset ms", "drift ppm", "residual ms", "collectives")
    return Table(columns, rows, len(audit.clocks) - len(shown))


def ring_models(audit: Audit, quoted: Quoted) -> Table:
    """The rings that the transfers were fitted to."""
    rows = [
        (
            figures.KINDS.get(model.kind, model.kind),
            quoted.count("ring_models", k, "group_size"),
            quoted.count("ring_models", k, "transfers"),
            quoted.size("ring_models", k, "smallest_bytes"),
            quoted.size("ring_models", k, "largest_bytes"),
            quoted.number("ring_models", k, "alpha_ms"),
            quoted.number("ring_models", k, "gb_per_s"),
        )
        for k, model in enumerate(audit.ring_models)
    ]
    columns = ("<collective", "ranks", "transfers", "from", "to", "latency of a hop, ms", "rate, GB/s")
    return Table(columns, rows)


def files(audit: Audit, quoted: Quoted) -> Table:
    """What all activities of each file add up to."""
    shown = figures.shown(audit, MOST_ROWS)
    names = ("comm_ms", "compute_ms", "exposed_ms")
    write = quoted.times(("ranks", k, "totals", name) for k in shown for name in names)
    rows = [
        (
            _rank(audit, k),
            f"{sum(step.valid for step in audit.ranks[k].steps)} of {len(audit.ranks[k].steps)}",
            quoted.count("ranks", k, "totals", "collectives"),
            *(write("ranks", k, "totals", name) for name in names),
            audit.ranks[k].source,
        )
        for k in shown
    ]
    columns = ("rank", "steps counted", "collectives", "communication", "compute", "exposed", "<file")
    return Table(columns, rows, len(audit.ranks) - len(shown))


def other_traffic(audit: Audit) -> Table:
    """What was not gradient traffic, by kind, over all counted steps."""
    traffic = figures.other_traffic(audit)
    places = decimals(row.duration for row in traffic)
    rows = [
        (
            figures.KINDS.get(row.kind, row.kind),
            row.role,
            row.phase,
            derived("traffic.count", row.count, f"{row.count:,}"),
            derived("traffic.bytes", row.bytes, size(row.bytes) if row.bytes is not None else ""),
            derived("traffic.duration", row.duration, in_column(row.duration, places)),
            derived("traffic.exposed", row.exposed, in_column(row.exposed, places)),
        )
        for row in traffic[:MOST_ROWS]
    ]
    columns = ("<collective", "<carries", "<launched in", "count", "size", "took ms", "exposed ms")
    return Table(columns, rows, max(len(traffic) - MOST_ROWS, 0))
