"""A comparison as Markdown that fits a pull request's comment."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TextIO

from stepscope.compare.result import Comparison
from stepscope_reports.compare import NOTE, about, bucket_row, changed, finding, paired, rows_of, unpaired
from stepscope_reports.markup import escaped, table
from stepscope_reports.plain import clean

_FIGURES = ("", "A", "B", "change", "95 % interval", "")
_BUCKETS = ("A", "B", "size", "took A", "took B", "exposed A", "exposed B", "hidden A", "hidden B", "exposed")


def render(made: Comparison, stream: TextIO) -> None:
    """Write the report to a text stream."""
    stream.writelines(f"{line}\n" for line in _lines(made))


def _lines(made: Comparison) -> Iterable[str]:
    first, *more = made.summary
    yield f"**{escaped(first[:1].upper() + first[1:])}**"
    for sentence in more:
        yield from ("", escaped(sentence[:1].upper() + sentence[1:]))
    yield ""
    yield from (
        f"- {letter}: {_code(side.name)}, {escaped(about(side))}"
        for letter, side in (("A", made.a), ("B", made.b))
    )
    yield from (f"- {escaped(sentence)}" for sentence in changed(made))
    for warning in made.warnings:
        yield from ("", f"> Warning: {escaped(warning)}")
    yield from table(_FIGURES, rows_of([*made.figures, *made.waterfall]))
    yield from table(_BUCKETS, [bucket_row(row) for row in paired(made.buckets)], "Buckets (ms)")
    for sentence in unpaired(made.buckets):
        yield from ("", f"Buckets {escaped(sentence)}")
    yield from ("", *(f"- {escaped(finding(row))}" for row in made.findings))
    yield from (NOTE, "") if not made.findings else ("", NOTE)


def _code(text: str) -> str:
    return f"`{clean(text).replace('`', chr(39))}`"
