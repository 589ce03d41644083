"""A comparison for a terminal: what changed in sentences, then every figure with its interval, in 80 columns."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TextIO

from rich.text import Text

from stepscope.compare.result import TOO_FEW, BucketDifference, Comparison, Difference, FindingChange, Side
from stepscope.units import decimals, milliseconds, percent, plural, size
from stepscope_reports.plain import clean, paragraph, shorten, table, write_lines
from stepscope_reports.tables import NOT_KNOWN

WIDTH = 80
MANY_BUCKETS = 24
"""Most rows of that table; --json has all."""

NOTE = (
    "Medians over steps, which need not add up, and are not the sums over all steps of an audit; the interval is 95 %, from the "
    "steps of these two runs. Another run of the same job may differ by more: repeat a run before you trust a small change. "
    "Noise (20): about 20 steps a side would tell a change of this size."
)

LABELS = {
    "step_ms": "step",
    "compute_ms": "compute",
    "comm_ms": "communication",
    "exposed_ms": "exposed",
    "cost_ms": "cost",
    "cost_share": "  of the step",
    "overlap_backward": "overlap",
    "grad.comm_ms": "gradients",
    "grad.hidden_backward_ms": "  behind backward",
    "grad.hidden_other_ms": "  behind other",
    "grad.exposed_ms": "  exposed",
    "grad.floor_ms": "  floor",
    "grad.excess_ms": "  excess",
    "waterfall.peer_wait_ms": "waiting",
    "waterfall.outside_backward_ms": "outside backward",
    "waterfall.host_starved_ms": "host-starved",
    "waterfall.device_blocked_ms": "device blocked",
    "waterfall.late_launch_ms": "launched late",
    "waterfall.queue_ms": "queued",
    "waterfall.tail_ms": "tail",
    "waterfall.unattributed_ms": "unattributed",
    "duration_ms": "took",
    "hidden_share": "hidden",
}


def render(made: Comparison, stream: TextIO) -> None:
    """Write the report to a text stream."""
    write_lines(_lines(made), stream)


def _lines(made: Comparison) -> Iterable[Text]:
    for sentence in made.summary:
        yield from paragraph(sentence[:1].upper() + sentence[1:], WIDTH)
    yield Text()
    for letter, side in (("A", made.a), ("B", made.b)):
        yield Text(f"{letter}  {shorten(side.name, WIDTH - 3)}")
        yield from (Text(f"   {line}", "dim") for line in paragraph(about(side), WIDTH - 3))
    for sentence in changed(made):
        yield from paragraph(sentence, WIDTH)
    for warning in made.warnings:
        yield from paragraph(f"Warning: {warning}", WIDTH)
    yield from _section("What changed (ms; shares change in points)", rows_of(made.figures))
    yield from _section("Exposed time, by reason (ms)", rows_of(made.waterfall))
    yield from _buckets(made.buckets)
    yield from _findings(made.findings)
    if made.figures:
        yield Text()
        yield from paragraph(NOTE, WIDTH)


def about(side: Side) -> str:
    """What a side was recorded on, in one line."""
    ranks = f"{side.ranks} of {side.world_size}" if side.world_size else str(side.ranks)
    machine = " on ".join(part for part in (side.backend, side.device_name or side.device) if part)
    return ", ".join(
        part for part in (f"{ranks} ranks", clean(machine), f"{plural(side.steps, 'step')} counted") if part
    )


def changed(made: Comparison) -> Iterable[str]:
    """Which settings differ: `Changed: bucket_cap_mb 25 to 1`; nothing where that is not known."""
    if made.changed is not None:
        listed = ", ".join(clean(f"{one.name} {one.a} to {one.b}") for one in made.changed)
        yield f"Changed: {listed or 'nothing that run.json has (the script itself may be another)'}"


def _section(title: str, rows: Sequence[Sequence[str]]) -> Iterable[Text]:
    if rows:
        yield Text()
        yield Text(title, "bold")
        yield from (Text("  ").append_text(line) for line in table(HEAD, rows))


HEAD = ("<", "A", "B", "change", "95 % interval", "<")


def rows_of(differences: Sequence[Difference]) -> list[tuple[str, ...]]:
    """The rows of a table under HEAD."""
    return [(LABELS.get(one.figure, clean(one.figure)), *cells(one)) for one in differences]


def cells(one: Difference) -> tuple[str, str, str, str, str]:
    """A, B, change, interval and what the change says."""
    interval = (
        ""
        if one.change_ci is None
        else f"{_signed(one, one.change_ci[0])} to {_signed(one, one.change_ci[1])}"
    )
    change = "" if one.change is None else _signed(one, one.change)
    return _value(one, one.a), _value(one, one.b), change, interval, remark(one)


def remark(one: Difference) -> str:
    """`worse`, or `noise (20)`: the steps that would tell a change of this size."""
    if one.says == TOO_FEW:
        return "few steps"
    if one.steps_needed is None:
        return one.says
    return f"noise ({'>10k' if one.steps_needed > 10_000 else one.steps_needed})"


def _value(one: Difference, value: float | None) -> str:
    if value is None:
        return NOT_KNOWN
    return percent(value) if one.unit == "share" else f"{value:,.{_places(one)}f}"


def _places(one: Difference) -> int:
    """The decimals of one row's times."""
    return decimals(value for value in (one.a, one.b) if value is not None)


def _signed(one: Difference, value: float) -> str:
    if one.unit == "share":
        return f"{100 * value:+.1f}"
    return f"{value:+,.{_places(one)}f}"


def _buckets(rows: Sequence[BucketDifference]) -> Iterable[Text]:
    if not rows:
        return
    yield Text()
    yield Text("Buckets (ms)", "bold")
    both = paired(rows)
    columns = ("A", "B", "size", "took A", "B", "exposed A", "B", "hidden A", "B", "<exposed")
    if both:
        lines = table(columns, [bucket_row(row) for row in both[:MANY_BUCKETS]])
        yield from (Text("  ").append_text(line) for line in lines)
    if len(both) > MANY_BUCKETS:
        yield Text(f"  and {plural(len(both) - MANY_BUCKETS, 'bucket')} more; --json has all", "dim")
    for sentence in unpaired(rows):
        yield from (Text("  ").append_text(line) for line in paragraph(sentence, WIDTH - 2))


def paired(rows: Sequence[BucketDifference]) -> list[BucketDifference]:
    """The buckets that both sides have."""
    return [row for row in rows if row.a is not None and row.b is not None]


def unpaired(rows: Sequence[BucketDifference]) -> Iterable[str]:
    """`only in A: 2 buckets of 12.0 MiB to 26.1 MiB; only in B: ...`: of those nothing can be compared."""
    sides = {
        "A": [row.bytes for row in rows if row.b is None],
        "B": [row.bytes for row in rows if row.a is None],
    }
    told = [
        f"only in {side}: {plural(len(sizes), 'bucket')}{_range(sizes)}"
        for side, sizes in sides.items()
        if sizes
    ]
    if told:
        yield "; ".join(told)


def _range(sizes: Sequence[int | None]) -> str:
    known = [one for one in sizes if one is not None]
    if not known:
        return ""
    low, high = size(min(known)), size(max(known))
    return f" of {low}" if low == high else f" of {low} to {high}"


def bucket_row(row: BucketDifference) -> tuple[str, ...]:
    """Positions on both sides, size, three pairs of figures, and what the exposed time's change says."""
    known = {one.figure: one for one in row.figures}
    pairs = []
    for name in ("duration_ms", "exposed_ms", "hidden_share"):
        one = known.get(name)
        pairs += ["", ""] if one is None else [_value(one, value) for value in (one.a, one.b)]
    places = tuple("-" if place is None else str(place) for place in (row.a, row.b))
    return (*places, _bucket_size(row), *pairs, remark(known["exposed_ms"]) if "exposed_ms" in known else "")


def _bucket_size(row: BucketDifference) -> str:
    if row.bytes is None:
        return NOT_KNOWN
    if row.bytes_b is None:
        return size(row.bytes)
    return f"{row.bytes / 2**20:.3g}, {row.bytes_b / 2**20:.3g} MiB"


def _findings(rows: Sequence[FindingChange]) -> Iterable[Text]:
    if rows:
        yield Text()
        yield Text("Findings", "bold")
    for row in rows:
        yield Text(f"  {finding(row)}")


def finding(row: FindingChange) -> str:
    """`gone: bucket-too-large (40.0 ms a step)`."""
    costs = [milliseconds(cost) for cost in (row.a_cost_ms, row.b_cost_ms) if cost is not None]
    return f"{row.change}: {clean(row.cause)}" + (f" ({', then '.join(costs)} a step)" if costs else "")
