"""The tables of the terminal report, as lines. Each is empty where there is nothing to show."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import PurePath

from rich.text import Text

from stepscope.audit.result import Audit, Bucket, Finding, Rank, Recommendation, Step, Verdict, Warning
from stepscope.units import decimals, in_column, milliseconds, percent, plural, size
from stepscope_reports import figures
from stepscope_reports.plain import clean, common_folder, paragraph, shorten, table
from stepscope_reports.run import run_of

MANY_FILES = 16
MANY_BUCKETS = 24
MANY_STEPS = 24
MANY_STRAGGLERS = 8
MANY_CLOCKS = 8
"""Most rows of each table; what is beyond them is counted in a last line, and audit.json has it all."""

NOT_KNOWN = "n/a"

WAITED = (
    'waited: all waiting of the other ranks in all recorded steps together, hidden or not; of the average step, "waiting for a '
    'late rank" has what was exposed'
)
"""What the sum of waiting for a rank is a sum of."""

AVERAGE = "The average counted step (means, so that parts add up)"


class Times:
    """Writes the times of one table with the same number of decimals, but for small ones among large ones."""

    def __init__(self, values: Iterable[float | None]) -> None:
        self._places = decimals(value for value in values if value is not None)

    def text(self, value: float | None) -> str:
        """The time without its unit, or that it is not known."""
        return NOT_KNOWN if value is None else in_column(value, self._places)


def share(part: float | None, whole: float | None) -> str:
    """A share as a percentage; not known where it was not measured or the whole is nothing."""
    return percent(part / whole) if part is not None and whole else NOT_KNOWN


def files(audit: Audit, width: int) -> list[Text]:
    """One row a file: what all of its activities add up to, whether or not a step launched them."""
    ranks = audit.ranks
    together = common_folder([rank.source for rank in ranks]) is not None
    totals = [rank.totals for rank in ranks]
    times = Times(time for total in totals for time in (total.comm_ms, total.compute_ms))
    rows = [
        (
            name_of(rank),
            f"{sum(step.valid for step in rank.steps)} of {len(rank.steps)}" if rank.steps else "none",
            *map(times.text, (rank.totals.comm_ms, rank.totals.compute_ms, rank.totals.exposed_ms)),
            clean(PurePath(rank.source).name if together else rank.source),
        )
        for rank in (ranks[place] for place in figures.shown(audit, MANY_FILES))
    ]
    columns = ("rank", "steps", "comm ms", "compute ms", "exposed ms", "<file, all of it")
    return [*table(columns, rows, width), *_more(len(ranks) - MANY_FILES, "file")]


def thresholds(verdict: Verdict) -> str:
    """What decides between the labels, and what communication was that is compared: its share is of another whole than cost's."""
    limits, found = verdict.thresholds, ""
    if verdict.comm_share is not None:
        found = f" (here {percent(verdict.comm_share)}, median"
        if verdict.comm_share_ci is not None:
            low, high = verdict.comm_share_ci
            found += f"; 95 % interval {100 * low:.1f} to {percent(high)}"
        found += ")"
    return (
        f"thresholds: cost {percent(limits.cost_share)} of the step; communication {percent(limits.comm_share)} of the step "
        f"less its cost{found}"
    )


def average(audit: Audit) -> list[Text]:
    """Where the time of the average counted step went, each part indented below the whole it is part of."""
    mean = figures.average([step for _, step in figures.counted(audit)])
    if mean is None:
        return []
    if not mean.comm:
        return _aligned([("step", mean.wall, ""), ("compute", mean.compute, "")])
    grad = mean.grad_comm
    rows: list[tuple[str, float | None, str]] = [
        ("step", mean.wall, ""),
        ("communication", mean.comm, share(mean.comm, mean.wall) + " of the step"),
        ("  gradients", grad, ""),
        ("    hidden by backward", mean.grad_hidden_backward, _overlap(mean, audit)),
        ("    hidden by other compute", mean.grad_hidden_other, share(mean.grad_hidden_other, grad)),
        ("    exposed", mean.grad_exposed, share(mean.grad_exposed, grad)),
        ("    floor", mean.floor, "these buckets can do no better"),
        ("    excess", mean.excess, "a better schedule could win it back"),
        ("exposed, all communication", mean.exposed, share(mean.exposed, mean.wall) + " of the step"),
        *_exposed_parts(mean.waterfall),
        ("cost of communication", mean.cost, cost_remark(mean, audit)),
    ]
    return _aligned(rows)


def cost_remark(mean: figures.Average, audit: Audit) -> str:
    """The mean share of the step, and how it was come by; the verdict's is a median."""
    of_step = f"{share(mean.cost, mean.wall)} of the step, mean"
    return f"{of_step}, by replay" if audit.verdict.cost_replayed else f"at most; {of_step}"


def _overlap(mean: figures.Average, audit: Audit) -> str:
    """Overlap with backward, and that of the transfers alone where waiting was told from them."""
    wire = audit.verdict.overlap_backward_wire
    alone = f"; {percent(wire)} of the transfer alone" if wire is not None else ""
    return share(mean.grad_hidden_backward, mean.grad_comm) + alone


def _exposed_parts(waterfall: Mapping[str, float]) -> list[tuple[str, float | None, str]]:
    """The parts of the exposed time that took any; those that may hold waiting say so where it was not told apart."""
    unsure = "" if "peer_wait_ms" in waterfall else ", or waiting"
    return [
        (f"  {label}", waterfall[name], remark + (unsure if name in figures.MAY_BE_WAITING else ""))
        for name, (label, remark) in figures.WATERFALL.items()
        if waterfall.get(name)
    ]


def _aligned(rows: Sequence[tuple[str, float | None, str]]) -> list[Text]:
    """The rows whose figure is known."""
    shown = [row for row in rows if row[1] is not None]
    times = Times(value for _, value, _ in shown)
    return [
        Text.assemble(f"{label:<27}{times.text(value):>10} ms", (f"  {remark}".rstrip(), "dim"))
        for label, value, remark in shown
    ]


def buckets(rows: Sequence[Bucket]) -> list[Text]:
    """Medians of each bucket over ranks and steps, in ms."""
    if not rows:
        return []
    times = Times(
        time for row in rows for time in (row.ready_ms, row.launch_ms, row.start_ms, row.duration_ms)
    )
    columns = ("bucket", "size", "params", "ready", "launched", "started", "took", "hidden", "exposed")
    cells = [
        (
            str(row.bucket),
            NOT_KNOWN if row.bytes is None else size(row.bytes),
            NOT_KNOWN if row.parameters is None else f"{row.parameters:,}",
            *map(times.text, (row.ready_ms, row.launch_ms, row.start_ms, row.duration_ms)),
            percent(row.hidden_share),
            times.text(row.exposed_ms),
        )
        for row in rows[:MANY_BUCKETS]
    ]
    passes = max(row.passes for row in rows)
    said = [Text(f"each in {passes} backward passes of a step; times are of one pass")] if passes > 1 else []
    return [*table(columns, cells), *_more(len(rows) - MANY_BUCKETS, "bucket"), *said]


def steps(audit: Audit, width: int) -> list[Text]:
    """A row a rank and counted step, or a row a rank where that would be many; then the steps left out and why."""
    groups = [(name_of(rank), str(step.step), [step]) for rank, step in figures.counted(audit)]
    if len(groups) > MANY_STEPS:
        ranks = [audit.ranks[place] for place in figures.shown(audit, MANY_STEPS)]
        valid = [(rank, [step for step in rank.steps if step.valid]) for rank in ranks]
        groups = [(name_of(rank), f"all {len(mine)}", mine) for rank, mine in valid if mine]
    lines = _step_table(groups) if groups else []
    lines += _more(len(audit.ranks) - MANY_STEPS, "rank")
    for text in left_out(audit):
        lines += paragraph(f"not counted: {text}", width)
    return lines


def _step_table(groups: Sequence[tuple[str, str, list[Step]]]) -> list[Text]:
    means = [(rank, name, figures.average(members)) for rank, name, members in groups]
    known = [(rank, name, mean) for rank, name, mean in means if mean is not None]
    times = Times(mean.wall for *_, mean in known)
    if not any(mean.comm for *_, mean in known):
        quiet = [(rank, name, times.text(mean.wall), times.text(mean.compute)) for rank, name, mean in known]
        return table(("rank", "step", "took", "compute"), quiet)
    rows = [
        (
            rank,
            name,
            *map(times.text, (mean.wall, mean.comm, mean.grad_comm)),
            share(mean.grad_hidden_backward, mean.grad_comm),
            *map(times.text, (mean.exposed, mean.floor, mean.cost)),
            share(mean.cost, mean.wall),
        )
        for rank, name, mean in known
    ]
    columns = ("rank", "step", "took", "comm", "grads", "overlap", "exposed", "floor", "cost", "of step")
    return table(columns, rows)


def name_of(rank: Rank) -> str:
    """The rank's number, where it is known."""
    return NOT_KNOWN if rank.rank is None else str(rank.rank)


def left_out(audit: Audit) -> list[str]:
    """`ranks 0, 1, step 4: bucket rebuild`; ranks that left out the same steps for the same reason together."""
    reasons: dict[tuple[str, str], list[str]] = {}
    for rank in audit.ranks:
        mine: dict[str, list[str]] = {}
        for step in rank.steps:
            if not step.valid:
                mine.setdefault(step.why_invalid or "no reason recorded", []).append(str(step.step))
        for why, numbers in mine.items():
            reasons.setdefault((_listed("step", numbers), why), []).append(name_of(rank))
    return [f"{_listed('rank', ranks)}, {numbers}: {why}" for (numbers, why), ranks in reasons.items()]


def _listed(noun: str, numbers: Sequence[str]) -> str:
    return f"{noun}{'s' if len(numbers) > 1 else ''} {', '.join(numbers)}"


def other_traffic(audit: Audit) -> list[Text]:
    """What was not gradient traffic, by kind, over all counted steps, or over the files where none counts."""
    traffic = figures.other_traffic(audit)
    times = Times(row.duration for row in traffic)
    rows = [
        (
            *(clean(name) for name in (row.kind, row.role, row.phase)),
            f"{row.count:,}",
            NOT_KNOWN if row.bytes is None else size(row.bytes),
            times.text(row.duration),
            times.text(row.exposed),
        )
        for row in traffic
    ]
    columns = ("<kind", "<carries", "<during", "count", "size", "took", "exposed")
    return table(columns, rows) if rows else []


def stragglers(audit: Audit, width: int) -> list[Text]:
    """Whom the others waited for, longest first; empty where no rank was ever late."""
    late = [row for row in audit.stragglers if row["total_ms"] > 0]
    times = Times(row["total_ms"] for row in late)
    rows = [
        (
            NOT_KNOWN if row["rank"] is None else str(row["rank"]),
            f"{row['last_share'] * row['collectives']:.0f} of {row['collectives']:,}",
            times.text(row["lateness_ms"]),
            times.text(row["total_ms"]),
        )
        for row in late[:MANY_STRAGGLERS]
    ]
    if not rows:
        return []
    columns = ("rank", "last at, of collectives", "by (median)", "the others waited")
    return [*table(columns, rows), *_more(len(late) - MANY_STRAGGLERS, "rank"), *paragraph(WAITED, width)]


def clocks(audit: Audit) -> list[Text]:
    """Each host's clock against the first one's, the furthest first; empty where there is one host."""
    rows = [
        (
            clean(row["host"]),
            f"{row['offset_ms']:,.3f}",
            f"{row['drift_ppm']:.1f}",
            f"{row['residual_ms']:.3f}",
            f"{row['pairs']:,}",
        )
        for row in sorted(audit.clocks, key=lambda row: -abs(row["offset_ms"]))[:MANY_CLOCKS]
    ]
    if not rows:
        return []
    return [
        *table(("<host", "offset ms", "drift ppm", "residual ms", "collectives"), rows),
        *_more(len(audit.clocks) - MANY_CLOCKS, "host"),
    ]


def warnings(rows: Sequence[Warning], width: int) -> list[Text]:
    """A paragraph a warning; the files that share one are named together."""
    sources: dict[tuple[str, str], list[str]] = {}
    for row in rows:
        found = sources.setdefault((row.code, row.message), [])
        if row.source is not None:
            found.append(row.source)
    return [
        line
        for (code, message), found in sources.items()
        for line in paragraph(f"{code}: {message}{_named(found)}", width)
    ]


def _named(sources: Sequence[str]) -> str:
    if not sources:
        return ""
    more = f" and {plural(len(sources) - 1, 'more file')}" if len(sources) > 1 else ""
    return f" ({shorten(sources[0], 44)}{more})"


def _more(count: int, noun: str) -> list[Text]:
    return [Text(f"and {plural(count, noun)} more; audit.json has all", "dim")] if count > 0 else []


def price_interval(finding: Finding) -> list[str]:
    """What the steps leave open of a finding's price, in a phrase; nothing where they do not tell."""
    if finding.cost_ms_ci is None:
        return []
    low, high = map(milliseconds, finding.cost_ms_ci)
    return [f"95 % interval of that: {low} to {high}"]


def recommended(audit: Audit, one: Recommendation) -> str:
    """The bucket size that is predicted to help, in a sentence or two; code is between backticks."""
    low, high = one.gain_ms_ci
    parts = ", ".join(f"{milliseconds(ms)} {words}" for ms, words in gained(one))
    return (
        f"`bucket_cap_mb={one.bucket_cap_mb:g}` is predicted to make a step {milliseconds(one.gain_ms)} shorter (95 % interval "
        f"{milliseconds(low)} to {milliseconds(high)}), with {plural(one.buckets, 'bucket')}"
        f"{f': {parts} ({gain_remark(audit)})' if parts else ''}; "
        "`stepscope predict` has the other sizes, `stepscope sweep` measures them"
    )


def gained(one: Recommendation) -> list[tuple[float, str]]:
    """What the gain consists of, in ms and words, where a hundredth of it or more is none of the cost of communication."""
    contended, late = one.contention_ms or 0.0, one.late_start_ms or 0.0
    parts = (
        (one.gain_ms - contended - late, "waiting for transfers"),
        (late, "waiting for them to start"),
        (contended, "compute slowed beside them"),
    )
    told = [
        (abs(ms), f"{'less' if ms > 0 else 'more'} {what}")
        for ms, what in parts
        if abs(ms) >= 0.01 * one.gain_ms
    ]
    return told if len(told) > 1 else []


def gain_remark(audit: Audit) -> str:
    """Why the parts of a gain are not what the cost of communication is."""
    run = run_of(audit)
    unrecorded = run is not None and run.profiler_cost is not None
    return (
        f"medians over steps{' as they are without recording' if unrecorded else ''}; the cost of communication"
        f"{', of recorded steps,' if unrecorded else ''} counts the first alone"
    )
