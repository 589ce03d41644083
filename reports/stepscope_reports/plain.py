"""Text made fit to show: names out of traces without what could steer a terminal, sentences in lines, tables."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Sequence
from pathlib import PurePath
from typing import TextIO

from rich.console import Console
from rich.text import Text

_NUMBER_AND_UNIT = re.compile(r"(?<=\d) (?=%|ms|[kMG]?B\b)")
_NO_BREAK = "\xa0"
_GAP = 2
"""Spaces between the columns of a table."""


def write_lines(lines: Iterable[Text], stream: TextIO) -> None:
    """Write lines to a text stream, with colour where it is a terminal."""
    console = Console(file=stream, markup=False, highlight=False, emoji=False)
    with console.capture() as capture:
        for line in lines:
            console.print(line, soft_wrap=True)
    stream.write(capture.get())  # the console itself would end the process when a pipe is closed


def clean(text: str) -> str:
    """The text in one line without control characters, which could steer a terminal."""
    return "".join(character if character.isprintable() else "\ufffd" for character in " ".join(text.split()))


def shorten(text: str, width: int) -> str:
    """Cleaned text of at most `width` characters; what is cut goes from the middle, since file names end alike."""
    text = clean(text)
    if len(text) <= width:
        return text
    head = (width - 3) // 2
    return f"{text[:head]}...{text[len(text) - (width - 3 - head) :]}"


def common_folder(paths: list[str]) -> str | None:
    """The folder that all the files lie in; None where they lie in several, or in the current one."""
    folders = {path.rpartition("/")[0] if "://" in path else str(PurePath(path).parent) for path in paths}
    return folders.pop() if len(folders) == 1 and folders != {"."} else None


def paragraph(text: str, width: int) -> list[Text]:
    """The text in lines of at most `width`; a number keeps its unit beside it, a long option or path stays whole."""
    glued = _NUMBER_AND_UNIT.sub(_NO_BREAK, clean(text))
    lines = textwrap.wrap(glued, width, break_long_words=False, break_on_hyphens=False)
    return [Text(line.replace(_NO_BREAK, " ")) for line in lines]


def table(columns: Sequence[str], rows: Sequence[Sequence[str]], width: int | None = None) -> list[Text]:
    """A header and rows in aligned columns: to the right, but to the left under a header that starts with "<".

    width: the last column is shortened to end there.
    """
    heads = [column.removeprefix("<") for column in columns]
    widths = [max(len(row[index]) for row in (heads, *rows)) for index in range(len(columns))]
    if width is not None:
        widths[-1] = min(
            widths[-1], max(width - sum(widths[:-1]) - _GAP * (len(columns) - 1), len(heads[-1]))
        )

    def line(cells: Sequence[str]) -> str:
        placed = (
            cell.ljust(width) if column.startswith("<") else cell.rjust(width)
            for cell, width, column in zip(
                [*cells[:-1], shorten(cells[-1], widths[-1])], widths, columns, strict=True
            )
        )
        return (" " * _GAP).join(placed).rstrip()

    return [Text(line(heads), "dim"), *(Text(line(row)) for row in rows)]
