"""GitHub-flavoured Markdown: names and sentences made harmless, tables, folded parts."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from stepscope_reports.plain import clean

_MARKS = re.compile(r"([\\`*_~$\[\]|#])")
_SPLIT = "\u200b"
"""A zero-width space: GitHub looks for mentions and links in the finished text, where no backslash is left."""
_LINKED = re.compile(r"(?<=@)(?=\w)|(?<=#)(?=\d)|(?<=:)(?=//)|(?<=www)(?=\.)", re.IGNORECASE)
_FENCE = re.compile(r"^\s*(`{3,})")


def escaped(text: str) -> str:
    """A name or sentence in one line, in which nothing is markup, a table's border, a mention or a link."""
    return _harmless(clean(text))


def _harmless(text: str) -> str:
    text = _LINKED.sub(_SPLIT, text)
    text = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return _MARKS.sub(r"\\\1", text)


def prose(text: str) -> str:
    """A sentence of ours in which what stands between backticks is code, and nothing else is markup."""
    parts = clean(text).split("`")
    return "".join(f"`{part}`" if place % 2 else _harmless(part) for place, part in enumerate(parts))


def table(head: Sequence[str], rows: Sequence[Sequence[str]], title: str = "") -> Iterable[str]:
    """A table with the first column to the left and the others to the right; nothing without rows.

    A head that starts with "<" has its column to the left too.
    """
    if not rows:
        return
    yield ""
    if title:
        yield from (f"{title}:", "")
    yield f"| {' | '.join(name.removeprefix('<') for name in head)} |"
    yield f"|:--|{''.join(':--|' if name.startswith('<') else '--:|' for name in head[1:])}"
    for row in rows:
        yield f"| {' | '.join(_cell(cell) for cell in row)} |"


def _cell(text: str) -> str:
    inner = text.strip()
    return ("&emsp;" if text.startswith("  ") else "") + escaped(inner)


def folded(title: str, lines: Sequence[str]) -> list[str]:
    """A part that opens when it is clicked: text in columns, as a terminal shows it; nothing without lines."""
    if not lines:
        return []
    longest = max((len(match[1]) for line in lines if (match := _FENCE.match(line))), default=2)
    fence = "`" * (longest + 1)
    heading = f"<details><summary>{escaped(title)}</summary>"
    return ["", heading, "", f"{fence}text", *lines, fence, "", "</details>"]
