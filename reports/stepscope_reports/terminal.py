"""The audit for a terminal: the verdict first, then what was measured, one step as a picture, and the tables.

80 columns are enough; colour adds nothing that the text does not say; piped, it is plain text.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TextIO

from rich.console import Console
from rich.text import Text

from stepscope.audit.result import Audit, Finding, Rank, Verdict
from stepscope.units import milliseconds, percent, plural
from stepscope_reports import figures, lanes, tables
from stepscope_reports.plain import clean, common_folder, paragraph, shorten
from stepscope_reports.run import run_of, sentences

WIDTH = 80
WIDEST = 100
"""A wider terminal adds nothing but longer lines to read."""

_INDENT = "  "
_STYLES = {
    "comm-bound": "bold red",
    "comm-sensitive": "bold yellow",
    "compute-bound": "bold green",
    "inconclusive": "bold magenta",
    "no communication": "bold cyan",
}


def render(audit: Audit, stream: TextIO) -> None:
    """Write the report to a text stream; colour and a wider terminal are used where the stream is a terminal."""
    console = Console(file=stream, markup=False, highlight=False, emoji=False)
    width = max(WIDTH, min(console.width, WIDEST)) if console.is_terminal else WIDTH
    glyphs = lanes.ASCII if console.options.ascii_only else lanes.UNICODE
    with console.capture() as capture:
        for line in _lines(audit, width, glyphs):
            line.rstrip()
            console.print(line, soft_wrap=True)
    stream.write(
        capture.get()
    )  # not through the console, which would end the process when the pipe is closed


def _lines(audit: Audit, width: int, glyphs: lanes.Glyphs) -> Iterable[Text]:
    inner = width - len(_INDENT)
    yield from _verdict(audit.verdict, width)
    yield from _section("Measured", _measured(audit, inner))
    yield from _section(tables.AVERAGE, tables.average(audit))
    yield from _picture(audit, inner, glyphs)
    yield from _section("Buckets (median ms from the start of backward)", tables.buckets(audit.buckets))
    yield from _section("Steps (ms)", tables.steps(audit, inner))
    yield from _section("Other communication (ms, in all)", tables.other_traffic(audit))
    yield from _section("Whom the others wait for (ms)", tables.stragglers(audit, inner))
    yield from _section("Clocks, against the first host's", tables.clocks(audit))
    for finding in audit.findings:
        yield from _section(_title(finding), _finding(finding, inner))
    yield from _section("Warnings", tables.warnings(audit.warnings, inner))
    if audit.recommendation is not None:
        yield from _section("Bucket size", paragraph(tables.recommended(audit, audit.recommendation), inner))
    if audit.verdict.next_step:
        yield from _section("Next", paragraph(audit.verdict.next_step, inner))


def _section(title: str, body: Sequence[Text]) -> Iterable[Text]:
    """A title over its indented body; nothing where the body is empty."""
    if body:
        yield Text()
        yield Text(title, "bold")
        yield from (Text(_INDENT).append_text(line) for line in body)


def _verdict(verdict: Verdict, width: int) -> Iterable[Text]:
    for line in paragraph(headline(verdict), width):
        line.highlight_words([verdict.label], _STYLES.get(verdict.label, "bold"))
        yield line
    yield Text()
    meaning = verdict.explanation.removeprefix(f"{verdict.label}: ")  # the headline has said it
    yield from paragraph(meaning[:1].upper() + meaning[1:], width)


def headline(verdict: Verdict) -> str:
    """The verdict in one sentence: label, reason, and the main figures with their interval where they were measured."""
    label = verdict.label + (", host-bound" if verdict.host_bound else "")
    if verdict.cost_share is None or not verdict.comm_share:
        return f"{label}: {verdict.reason}"
    interval = ""
    if verdict.cost_share_ci is not None:
        low, high = verdict.cost_share_ci
        interval = f" (median; 95 % interval {100 * low:.1f} to {percent(high)})"
    overlap = ""
    if verdict.overlap_backward is not None:
        overlap = f"; {percent(verdict.overlap_backward)} of gradient communication hides behind backward"
    return f"{label} ({verdict.reason}): communication costs {percent(verdict.cost_share)} of the step{interval}{overlap}"


def _rests_on(audit: Audit) -> list[str]:
    replayed = figures.replayed(audit)
    return [] if replayed is None else [replayed]


def _measured(audit: Audit, width: int) -> list[Text]:
    ranks = audit.ranks
    steps = [step for rank in ranks for step in rank.steps]
    valid = sum(step.valid for step in steps)
    counted = f"{valid:,} of {plural(len(steps), 'step')} counted" if steps else "no step found"
    thresholds = paragraph(tables.thresholds(audit.verdict), width)
    folder = common_folder([rank.source for rank in ranks])
    run = run_of(audit)
    told = [f"{machines(ranks)}; {counted}", *_rests_on(audit), *(sentences(run) if run else [])]
    return [
        *(line for text in told for line in paragraph(text, width)),
        *([Text(f"from {shorten(folder, width - 5)}")] if folder else []),
        *tables.files(audit, width),
        *(thresholds if audit.verdict.label != "no communication" else []),
    ]


def machines(ranks: Sequence[Rank]) -> str:
    """`2 of 2 ranks, gloo on cpu`: every backend and device that was recorded, in order of appearance."""

    def named(values: Iterable[str | None], before: str, after: str = "") -> str:
        known = ", ".join(dict.fromkeys(value for value in values if value is not None))
        return f"{before}{known}{after}" if known else ""

    numbers = {rank.rank for rank in ranks if rank.rank is not None}
    sizes = {rank.world_size for rank in ranks if rank.world_size is not None}
    return (
        (
            f"{len(numbers):,} of {plural(max(sizes), 'rank')}"
            if numbers and sizes
            else plural(len(ranks), "file")
        )
        + named((rank.backend for rank in ranks), ", ")
        + named((rank.device for rank in ranks), " on ")
        + named((rank.device_name for rank in ranks), " (", ")")
    )


def _picture(audit: Audit, width: int, glyphs: lanes.Glyphs) -> Iterable[Text]:
    chosen = figures.typical_step(audit)
    if chosen is None:
        return
    rank, step = chosen
    collectives = figures.of_step(audit, rank, step)
    lines = lanes.draw(step, collectives, width, glyphs)
    remark = milliseconds(step.wall_ms) if step.valid else f"not counted: {clean(step.why_invalid or '')}"
    if lines:
        title = f"One step: rank {tables.name_of(rank)}, step {step.step} ({remark})"
        yield from _section(title, [*lines, lanes.legend(glyphs, communication=bool(collectives))])


def _title(finding: Finding) -> str:
    cost = f", {milliseconds(finding.cost_ms)} a step" if finding.cost_ms is not None else ""
    return f"Finding: {clean(finding.cause)} ({clean(finding.severity)}{cost})"


def _finding(finding: Finding, width: int) -> list[Text]:
    texts = [*tables.price_interval(finding), *finding.evidence, f"fix: {finding.fix}"]
    return [line for text in texts for line in paragraph(text, width)]
