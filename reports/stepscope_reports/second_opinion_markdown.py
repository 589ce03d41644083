"""A second opinion as Markdown."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TextIO

from stepscope.second_opinion.result import SecondOpinion
from stepscope_reports.markup import escaped, table
from stepscope_reports.second_opinion import FIGURES, NOTE, figure_rows, files, headline, ladders, remarks


def render(made: SecondOpinion, stream: TextIO) -> None:
    """Write the report to a text stream."""
    stream.writelines(f"{line}\n" for line in _lines(made))


def _lines(made: SecondOpinion) -> Iterable[str]:
    yield f"**{escaped(headline(made))}**"
    yield ""
    yield from (f"- {escaped(line)}" for line in files(made))
    head = [name.removeprefix("<") for name in FIGURES]
    yield from table(head, [row for one in made.opinions for row in figure_rows(made, one)])
    for title, names, rows in ladders(made):
        yield from ("", f"Why they differ, {escaped(title)}:")
        yield from table([name.removeprefix("<") for name in names], rows)
    yield from ("", NOTE, "")
    yield from (f"- {escaped(text)}" for text in remarks(made))
