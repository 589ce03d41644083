"""The tables of a budget, as lines. Each is empty where there is nothing to show."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.text import Text

from stepscope.budget.result import (
    BucketRow,
    Budget,
    Candidate,
    Communication,
    Input,
    OtherCollective,
    Recommendation,
    Ring,
    ScalePoint,
    SizeRange,
)
from stepscope.units import decimals, milliseconds, percent, plural
from stepscope_reports.plain import clean, paragraph, table

if TYPE_CHECKING:
    from stepscope.budget.quantities import Size, Time

NONE = "-"
MEASURED = "measured"
"""The origin whose file is said with each input; a recorded run is named once, at the top."""

GIVEN = ("command line", "assumed")
"""Origins whose values are shown as they were written down; the others in three digits."""

DEFAULT_MIB = 25


def yes(value: bool) -> str:
    """`yes` or `no`."""
    return "yes" if value else "no"


def mib(size: Size) -> str:
    """A size in MiB, with its unit and about three digits."""
    return f"{number(size.mib)} MiB"


def number(value: float) -> str:
    """A figure with three digits or all of its whole ones, thousands apart."""
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"


def ms(time: Time) -> str:
    """A time in ms for a table: the unit is in the column's head."""
    return f"{time.ms:,.{decimals((time.ms,))}f}"


def inputs(rows: Sequence[Input], width: int) -> list[Text]:
    """Every input with where it came from and the option that sets it; a long list goes on in the next line."""
    cells = [(row.origin, row.option or NONE, row.name) for row in rows]
    heads = table(("<from", "<option", "<input"), cells)
    left = max(len(line.plain) for line in heads) + 2
    lines = [Text(f"{heads[0].plain:<{left}}value", "dim")]
    for head, row in zip(heads[1:], rows, strict=True):
        value = paragraph(_value(row), width - left)
        lines += [
            Text(f"{first:<{left}}{text.plain}")
            for first, text in zip([head.plain, *[""] * len(value)], value, strict=False)
        ]
    return lines


def _value(row: Input) -> str:
    values = row.value if isinstance(row.value, tuple) else (row.value,)
    shown = "{:.6g}".format if row.origin in GIVEN else number
    text = ", ".join(value if isinstance(value, str) else shown(value) for value in values)
    value = f"{text} {row.unit}" if row.unit else text
    if row.interval is not None:
        low, high = row.interval
        value += f" ({number(low)} to {number(high) if high is not None else 'any'})"
    return f"{value}, {clean(row.source)}" if row.source and row.origin == MEASURED else value


def ring(budget: Budget, made: Ring, width: int) -> list[Text]:
    """The ring's terms, the step's efficiency at both ends, and backward as the window."""
    cost = made.cost
    size = budget.message
    rows = [
        ("message S", f"{size.bytes / 1e9:.3g} GB", f"{size.mib:,.0f} MiB; GB is 1e9 bytes, MiB is 2**20"),
        ("latency term", milliseconds(cost.latency.ms), made.cut),
        ("bandwidth term", milliseconds(cost.bandwidth.ms), _ratio(made)),
        (
            "total",
            milliseconds(made.total.ms),
            f"{percent(made.share)} of {milliseconds(budget.step.ms)} of compute",
        ),
        ("efficiency", percent(made.exposed_efficiency), "fully exposed: nothing overlaps"),
        ("", percent(made.ceiling), "ceiling: perfect overlap"),
        ("backward", milliseconds(made.window.ms), "the window, of a micro-batch"),
        ("  to fit in it", milliseconds(made.in_backward.ms), "fits" if made.fits else "does not fit"),
        ("  slack", milliseconds(made.slack.ms), f"margin {100 * made.margin:.0f} %"),
        *_outside(budget, made),
        (
            "crossover S*",
            f"{made.crossover.mib:,.2f} MiB",
            f"{made.crossover.mb:.4g} MB: below it latency costs more",
        ),
    ]
    lines = [
        Text.assemble(f"{name:<15}{value:>12}", (f"  {remark}".rstrip(), "dim"))
        for name, value, remark in rows
    ]
    return [*lines, *(_accumulated(budget, width))]


def _ratio(made: Ring) -> str:
    return f"{made.bandwidth_over_latency:,.3g} times the latency term"


def _outside(budget: Budget, made: Ring) -> list[tuple[str, str, str]]:
    if not made.outside_backward.base:
        return []
    where = "moved outside of backward" if budget.accumulate == 1 else "in the rest of the whole step"
    remark = f"parameters, {where}"
    return [("  not in it", milliseconds(made.outside_backward.ms), remark)]


def _accumulated(budget: Budget, width: int) -> list[Text]:
    if budget.accumulate == 1:
        return []
    per = "every micro-batch reduces its own" if budget.zero >= 2 else "one reduction for all of them"
    return paragraph(f"An optimizer step is {budget.accumulate} micro-batches, {per}.", width)


def buckets(communication: Communication, width: int) -> list[Text]:
    """A row a bucket size, what the columns mean, and which sizes to take."""
    columns = ("bucket MiB", "count", "time ms", "latency %", "overlap?", "bandwidth-bound?", "exposed ms")
    lines = table(columns, [_bucket(row) for row in communication.buckets])
    whole = [row for row in communication.buckets if row.covers_model]
    if whole:
        sizes = ", ".join(number(row.bucket.mib) for row in whole)
        lines += paragraph(f"{sizes} MiB holds the whole model: one bucket, which can't overlap.", width)
    lines += paragraph(
        "exposed: what sticks out of backward at best, if gradients become ready at an even pace.", width
    )
    return [*lines, Text(), *_recommended(communication.recommended, width)]


def _bucket(row: BucketRow) -> tuple[str, ...]:
    return (
        number(row.bucket.mib),
        f"{row.count:,}",
        f"{row.total.ms:.1f}",
        f"{100 * row.latency_share:.1f}",
        yes(row.overlaps),
        yes(row.bandwidth_bound),
        f"{row.exposed.ms:.1f}",
    )


def bucket_range(made: Recommendation) -> str:
    """`64 to 100 MiB`, or one size."""
    low, high = number(made.low.mib), number(made.high.mib)
    return f"{low} to {high} MiB" if low != high else f"{low} MiB"


def _recommended(made: Recommendation, width: int) -> list[Text]:
    counts = (
        f"{made.low_count:,} to {made.high_count:,}"
        if made.low_count != made.high_count
        else f"{made.low_count:,}"
    )
    text = f"Take {bucket_range(made)} ({counts} buckets). {made.reason} "
    default = (
        f"DDP's default of {DEFAULT_MIB} MiB is {made.default_over_crossover:.1f} times S* here: "
        f"{100 * made.default_over_ideal:.0f} % over the ideal time, and at best {milliseconds(made.default_exposed.ms)} exposed."
    )
    return paragraph(text + default, width)


def beyond_ring(communication: Communication, width: int) -> list[Text]:
    """The whole message by every algorithm, each bucket by the better ones, and where the cheapest changes."""
    made = communication.beyond_ring
    columns = ("<algorithm", "latency ms", "bandwidth ms", "total ms", "<used by")
    lines = table(columns, [_candidate(row) for row in made.whole_message])
    for row in made.whole_message:
        if row.refusal:
            lines += paragraph(f"{row.name}: {row.refusal}", width)
    heads = ("one bucket", "ring ms", "library ms", "<by", "best ms", "<by ")
    rows = [
        (
            mib(row.library.size),
            ms(row.ring.total),
            ms(row.library.cost.total),
            row.library.algorithm,
            ms(row.cheapest.cost.total),
            row.cheapest.algorithm,
        )
        for row in made.sizes
    ]
    lines += [Text(), *table(heads, rows), Text()]
    lines += paragraph(f"library (NCCL, RCCL): {ranges(made.library_ranges)}.", width)
    lines += paragraph(f"best (of all that this fabric allows): {ranges(made.all_ranges)}.", width)
    return lines + [line for text in _assumptions(made.all_ranges) for line in paragraph(text, width)]


def _assumptions(rows: Sequence[SizeRange]) -> list[str]:
    names = {row.algorithm for row in rows}
    texts = {
        "halving-doubling": "halving-doubling needs full bisection bandwidth: any two ranks at the full rate, all pairs at once.",
        "hierarchical": "hierarchical needs a link of its own to the other nodes for each rank.",
        "two-shot": "one-shot and two-shot need direct links among all ranks.",
    }
    return [text for name, text in texts.items() if name in names]


def ranges(rows: Sequence[SizeRange]) -> str:
    """`double binary tree up to 5.09 MiB, then ring`."""
    if len(rows) == 1:
        return f"{rows[0].algorithm} at every size"
    parts = [f"{row.algorithm} up to {mib(row.up_to)}" for row in rows if row.up_to is not None]
    return f"{', then '.join(parts)}, then {rows[-1].algorithm}"


def _candidate(row: Candidate) -> tuple[str, ...]:
    if row.cost is None:
        return (row.name, NONE, NONE, NONE, row.used_by)
    times = (row.cost.latency, row.cost.bandwidth, row.cost.total)
    return (row.name, *map(ms, times), row.used_by)


def others(rows: Sequence[OtherCollective]) -> list[Text]:
    """Each other collective by each of its algorithms; those outside of their domain are left out."""
    cells = [
        (
            row.collective,
            candidate.name,
            ms(candidate.cost.latency),
            ms(candidate.cost.total),
            candidate.used_by,
        )
        for row in rows
        for candidate in row.candidates
        if candidate.cost is not None
    ]
    return table(("<collective", "<algorithm", "latency ms", "total ms", "<used by"), cells)


def memory(budget: Budget, width: int) -> list[Text]:
    """A row a ZeRO stage: what a rank keeps, in GiB, and how much goes over the wire."""
    columns = ("ZeRO", "parameters", "gradients", "optimizer", "total GiB", "wire volume", "<")
    rows = [
        (
            str(row.stage),
            *(f"{size.gib:.2f}" for size in (row.parameters, row.gradients, row.optimizer, row.total)),
            f"{row.volume:g}x",
            "this setting" if row.stage == budget.zero else "",
        )
        for row in budget.memory
    ]
    text = "GiB is 2**30 bytes. Activations, buffers and fragmentation come on top."
    return [*table(columns, rows), *paragraph(text, width)]


def scaling(budget: Budget, width: int) -> list[Text]:
    """A row a number of ranks, what grew, and what the batch does to training."""
    points = budget.scaling
    if not points:
        return []
    columns = ("ranks", "latency", "bandwidth", "total ms", "of step", "S* MiB", "in 25 MiB", "batch")
    lines = table(columns, [_point(point) for point in points])
    others = [point for point in points if point.ranks != budget.ranks]
    lines += [line for point in others for line in paragraph(_grown(point), width)]
    return [*lines, *_batch(points[-1], width)]


def _point(point: ScalePoint) -> tuple[str, ...]:
    return (
        f"{point.ranks:,}",
        ms(point.cost.latency),
        f"{point.cost.bandwidth.ms:,.1f}",
        f"{point.total.ms:,.1f}",
        percent(point.share),
        f"{point.crossover.mib:,.2f}",
        f"{point.default_bucket.ms:,.1f}",
        _batch_of(point.global_batch, point.batch_growth),
    )


def _batch_of(batch: float | None, growth: float) -> str:
    return f"{growth:.3g}x" if batch is None else f"{batch:,.10g}"


def _grown(point: ScalePoint) -> str:
    take = bucket_range(point.recommended)
    buckets = f"buckets of {take}" + ("" if point.recommended.comfortable else ", for want of a good size")
    if point.bandwidth_growth is None or point.latency_growth is None:
        return f"{point.ranks:,} ranks: {buckets}."
    return (
        f"{point.ranks:,} ranks: bandwidth {100 * (point.bandwidth_growth - 1):+.1f} %, latency {point.latency_growth:.1f}x, "
        f"S* and global batch {point.batch_growth:.3g}x; {buckets}."
    )


def _batch(last: ScalePoint, width: int) -> list[Text]:
    text = (
        "Bucket sizes have to be tuned again for every number of ranks. What ends scaling on pure data parallelism is not "
        "communication but the critical batch size: beyond it more ranks save ever fewer steps. "
    )
    if last.over_critical is None or last.steps_ratio is None:
        return [Text(), *paragraph(text + "--batch and --critical-batch together say where that is.", width)]
    side = "past" if last.over_critical > 1 else "within"
    return [
        Text(),
        *paragraph(
            f"{text}On {plural(last.ranks, 'rank')} the global batch is {last.over_critical:.3g} times the critical one, {side} "
            f"it: {last.batch_growth:.3g} times the ranks need {last.steps_ratio:.3g} times the optimizer steps to the same loss "
            f"({1 / last.batch_growth:.3g} would be perfect).",
            width,
        ),
    ]
