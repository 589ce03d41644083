"""The audit as a comment on a pull request: the answer on one screen, the details folded, for GitHub's Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TextIO

from rich.text import Text

from stepscope.audit.result import Audit, Finding
from stepscope.units import milliseconds, plural
from stepscope_reports import figures, lanes, tables
from stepscope_reports.markup import escaped, folded, prose, table
from stepscope_reports.plain import clean, paragraph, shorten
from stepscope_reports.run import run_of, sentences
from stepscope_reports.terminal import headline, machines

LIMIT_BYTES = 65_000
"""GitHub takes 65,536 characters a comment; what follows the last part that fits is said to be left out."""

MANY_FINDINGS = 12

_WIDTH = 100
_LONG = 600
"""Characters of one sentence in a table, and of one folded line; evidence and names are not bounded by anything else."""


def render(audit: Audit, stream: TextIO) -> None:
    """Write the report to a text stream: at most `LIMIT_BYTES` in UTF-8."""
    text = "\n".join(_answer(audit)) + "\n"
    left_out = []
    for title, lines in _details(audit):
        part = "\n".join([*folded(title, [line.plain.rstrip()[:_LONG] for line in lines]), ""])
        if len((text + part).encode()) < LIMIT_BYTES - _LONG:
            text += part
        else:
            left_out.append(title)
    if left_out:
        text += f"\nLeft out for its length: {escaped('; '.join(left_out))}. audit.json has all.\n"
    stream.write(text)


def _answer(audit: Audit) -> Iterable[str]:
    """Verdict, why, what to do, the main figures, and what was found."""
    verdict = audit.verdict
    yield f"**{escaped(headline(verdict))}**"
    meaning = verdict.explanation.removeprefix(f"{verdict.label}: ")
    yield from ("", escaped(meaning[:1].upper() + meaning[1:]))
    if verdict.next_step:
        yield from ("", f"**What to do:** {escaped(verdict.next_step)}{_gain(audit, verdict.next_step)}")
    if audit.recommendation is not None:
        yield from ("", f"**Bucket size:** {prose(tables.recommended(audit, audit.recommendation))}")
    yield from table(("average counted step (means)", "ms", "<"), _figures(audit))
    yield from table(("found", "ms a step", "95 % interval", "of the step", "<what to do"), _findings(audit))
    yield from _more(len(audit.findings) - MANY_FINDINGS)
    yield from ("", f"<sub>{escaped(_basis(audit))}</sub>")


def _gain(audit: Audit, fix: str) -> str:
    """What the advice is worth, where it is a finding's cause and fix, and its price is known."""
    wall = _wall(audit)
    for finding in audit.findings:
        if fix.removeprefix(f"{finding.cause}: ") == finding.fix and finding.cost_ms:
            cost, part = milliseconds(finding.cost_ms), tables.share(finding.cost_ms, wall)
            return f" (costs {cost} a step now, {part} of it)"
    return ""


def _wall(audit: Audit) -> float | None:
    mean = figures.average([step for _, step in figures.counted(audit)])
    return mean.wall if mean else None


def _figures(audit: Audit) -> list[tuple[str, str, str]]:
    mean = figures.average([step for _, step in figures.counted(audit)])
    if mean is None:
        return []
    grad = mean.grad_comm
    rows: list[tuple[str, float | None, str]] = [
        ("step", mean.wall, ""),
        ("communication", mean.comm, f"{tables.share(mean.comm, mean.wall)} of the step"),
        ("gradients", grad, ""),
        ("  hidden by backward", mean.grad_hidden_backward, tables.share(mean.grad_hidden_backward, grad)),
        ("  hidden by other compute", mean.grad_hidden_other, tables.share(mean.grad_hidden_other, grad)),
        ("  exposed", mean.grad_exposed, tables.share(mean.grad_exposed, grad)),
        ("exposed, all communication", mean.exposed, f"{tables.share(mean.exposed, mean.wall)} of the step"),
        ("floor of gradients", mean.floor, "these buckets can do no better"),
        ("cost of communication", mean.cost, tables.cost_remark(mean, audit)),
    ]
    shown = [row for row in rows if row[1] is not None]
    times = tables.Times(value for _, value, _ in shown)
    return [(label, times.text(value), remark) for label, value, remark in shown]


def _findings(audit: Audit) -> list[tuple[str, ...]]:
    wall = _wall(audit)
    times = tables.Times(finding.cost_ms for finding in audit.findings)
    return [
        (
            finding.cause,
            times.text(finding.cost_ms),
            " to ".join(map(times.text, finding.cost_ms_ci or ())),
            tables.share(finding.cost_ms, wall),
            shorten(finding.fix, _LONG),
        )
        for finding in audit.findings[:MANY_FINDINGS]
    ]


def _more(count: int) -> Iterable[str]:
    if count > 0:
        yield from ("", f"and {plural(count, 'finding')} more; audit.json has all")


def _basis(audit: Audit) -> str:
    """What the answer rests on."""
    steps = [step for rank in audit.ranks for step in rank.steps]
    counted = f"{sum(step.valid for step in steps)} of {plural(len(steps), 'step')} counted"
    run = run_of(audit)
    return "; ".join(
        [
            machines(audit.ranks),
            counted if steps else "no step found",
            *(sentences(run) if run else []),
            tables.thresholds(audit.verdict),
            f"stepscope {audit.stepscope}",
        ]
    )


def _details(audit: Audit) -> Iterable[tuple[str, Sequence[Text]]]:
    """The tables of the terminal, each under its title."""
    yield "Where the time of the average counted step goes", tables.average(audit)
    yield from _picture(audit)
    yield "Evidence", [line for finding in audit.findings for line in _evidence(finding)]
    yield "Buckets (median ms from the start of backward)", tables.buckets(audit.buckets)
    yield "Steps (ms)", tables.steps(audit, _WIDTH)
    yield "Other communication (ms, in all)", tables.other_traffic(audit)
    yield "Whom the others wait for (ms)", tables.stragglers(audit, _WIDTH)
    yield "Clocks, against the first host's", tables.clocks(audit)
    yield "Files", tables.files(audit, _WIDTH)
    yield f"Warnings ({len(audit.warnings)})", tables.warnings(audit.warnings, _WIDTH)


def _picture(audit: Audit) -> Iterable[tuple[str, Sequence[Text]]]:
    if (chosen := figures.typical_step(audit)) is not None:
        rank, step = chosen
        collectives = figures.of_step(audit, rank, step)
        lines = lanes.draw(step, collectives, _WIDTH, lanes.UNICODE)
        if lines:
            legend = lanes.legend(lanes.UNICODE, communication=bool(collectives))
            yield f"One step: rank {tables.name_of(rank)}, step {step.step}", [*lines, legend]


def _evidence(finding: Finding) -> list[Text]:
    return [
        Text(clean(f"{finding.cause} ({finding.severity}, confidence {finding.confidence})")),
        *(Text(f"  {line.plain}") for text in finding.evidence for line in paragraph(text, _WIDTH - 2)),
    ]
