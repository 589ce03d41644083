"""A second opinion for a terminal: every figure of ours and theirs, then why they differ, in 80 columns."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence
from pathlib import PurePath
from typing import TextIO

from rich.text import Text

from stepscope.second_opinion.result import Figure, Opinion, Peer, SecondOpinion
from stepscope.units import milliseconds, plural
from stepscope_reports.plain import clean, paragraph, shorten, table, write_lines
from stepscope_reports.tables import NOT_KNOWN

WIDTH = 80
MANY_FILES = 16
"""Most files in the table; --json has all."""

_LONGEST_NAME = 44
"""Of a definition in one line: three columns of figures fit beside it."""

FIGURES = ("file", "<peer", "<figure", "ours", "theirs", "theirs, by us", "unexplained")
NOTE = (
    "Each line changes one definition and keeps the changes above it, all computed on our own reading of the trace; the last "
    'is the peer\'s, and "theirs, by us" above. Unexplained is what its own figure differs from that by.'
)


def render(made: SecondOpinion, stream: TextIO) -> None:
    """Write the report to a text stream."""
    write_lines(_lines(made), stream)


def _lines(made: SecondOpinion) -> Iterable[Text]:
    yield from paragraph(headline(made), WIDTH)
    yield from _section("Files", [Text(shorten(line, WIDTH - 2)) for line in files(made)])
    shown = made.opinions[: MANY_FILES * len(made.peers)]
    rows = [row for one in shown for row in figure_rows(made, one)]
    yield from _section("Side by side", table(FIGURES, rows) if rows else [])
    if len(shown) < len(made.opinions):
        yield Text(f"  and {plural(len(made.opinions) - len(shown), 'more opinion')}; --json has all")
    for title, head, rungs in ladders(made):
        yield from _section(f"Why they differ: {title}", table(head, list(_wrapped(rungs))))
    if made.opinions:
        yield from _section("", paragraph(NOTE, WIDTH - 2))
    notes = [line for text in remarks(made) for line in paragraph(text, WIDTH - 2)]
    yield from _section("What they read otherwise, or not at all", notes)


def _section(title: str, body: Sequence[Text]) -> Iterable[Text]:
    if body:
        yield Text()
        if title:
            yield from (Text(line.plain, "bold") for line in paragraph(title, WIDTH))
        yield from (Text("  ").append_text(line) for line in body)


def headline(made: SecondOpinion) -> str:
    """Which peers gave nothing and why, then whether the figures of the others come out of our data by their definitions."""
    asked = [peer for peer in made.peers if peer.missing is None]
    told = [text for peer in asked for text in (_failed(made, peer), _agreed(made, peer)) if text]
    return ". ".join([*told, *(peer.missing for peer in made.peers if peer.missing)])


def _failed(made: SecondOpinion, peer: Peer) -> str | None:
    """That a peer gave no figure for some files, and why; None where it did for all."""
    of_peer = [one for one in made.opinions if one.peer == peer.name]
    errors = [clean(one.error) for one in of_peer if one.error is not None]
    if not errors:
        return None
    every = "these files" if len(of_peer) > 1 else "this file"
    which = every if len(errors) == len(of_peer) else f"{len(errors)} of {len(of_peer)} files"
    more = ", and other reasons below" if len(set(errors)) > 1 else ""
    return f"{_versioned(peer)} gives no overlap for {which}, which is no disagreement: {errors[0]}{more}"


def _agreed(made: SecondOpinion, peer: Peer) -> str | None:
    """Of the figures that a peer gave, whether our data has them; None where it gave none."""
    of_peer = [one for one in made.opinions if one.peer == peer.name]
    given = [figure.agrees for one in of_peer for figure in one.figures if figure.agrees is not None]
    if not given:
        return None
    apart = given.count(False)
    ours = (
        f"our data under its definitions does not give {apart}"
        if apart
        else "our data under its definitions gives every one"
    )
    return f"{_versioned(peer)}: {plural(len(given), 'figure')} of its own, {'of which' if apart else 'and'} {ours}"


def _versioned(peer: Peer) -> str:
    return f"{peer.name} {peer.version}"


def _sources(made: SecondOpinion) -> list[str]:
    return list(dict.fromkeys(one.source for one in made.opinions))


def files(made: SecondOpinion) -> list[str]:
    """`0  rank 0, runs/demo/rank0.pt.trace.json.gz`: the numbers that the tables use."""
    ranks = {one.source: one.rank for one in made.opinions}
    return [
        f"{place}  {'' if ranks[source] is None else f'rank {ranks[source]}, '}{clean(PurePath(source).name)}"
        for place, source in enumerate(_sources(made))
    ]


def figure_rows(made: SecondOpinion, one: Opinion) -> list[tuple[str, ...]]:
    """A row for each figure, or one row where the peer gave none."""
    place = str(_sources(made).index(one.source))
    return [
        (
            place,
            _short(one.peer),
            figure.figure,
            value(figure, figure.ours),
            value(figure, figure.theirs),
            value(figure, figure.theirs_by_us),
            unexplained(figure),
        )
        for figure in one.figures
    ]


def _short(peer: str) -> str:
    return {"HolisticTraceAnalysis": "HTA", "torch-tb-profiler": "tb-profiler"}.get(peer, clean(peer))


def value(figure: Figure, number: float | None) -> str:
    """`14.31 %` or `75.17 ms`."""
    if number is None:
        return NOT_KNOWN
    return f"{100 * number:.2f} %" if figure.unit == "share" else milliseconds(number)


def unexplained(figure: Figure) -> str:
    """How far theirs is from their definition on our data, and that it is too far where it is."""
    if figure.unexplained is None:
        return NOT_KNOWN
    off = 100 * figure.unexplained if figure.unit == "share" else figure.unexplained
    return f"{off:+.3f}{'' if figure.agrees else ' !'}".replace("-0.000", "+0.000").replace("+0.000", "0.000")


def ladders(made: SecondOpinion) -> Iterable[tuple[str, tuple[str, ...], list[tuple[str, ...]]]]:
    """For each peer and figure a title, a head, and a row a definition: the first file, and the range over all of them."""
    groups: dict[tuple[str, str], list[Figure]] = {}
    for one in made.opinions:
        for figure in one.figures:
            groups.setdefault((one.peer, figure.figure), []).append(figure)
    for (peer, name), figures in groups.items():
        several = len(figures) > 1
        head = ("<", "file 0", *(("lowest", "highest") if several else ()))
        yield f"{name}, {peer}", head, [_rung(figures, place) for place in range(len(figures[0].rungs))]


def _wrapped(rows: Sequence[tuple[str, ...]]) -> Iterable[tuple[str, ...]]:
    """Rows whose first cell goes on in rows of its own where it would push the others over the edge."""
    for name, *cells in rows:
        first, *more = textwrap.wrap(name, _LONGEST_NAME)
        yield first, *cells
        yield from ((f"  {line}", *("" for _ in cells)) for line in more)


def _rung(figures: Sequence[Figure], place: int) -> tuple[str, ...]:
    first = figures[0]
    values = [figure.rungs[place].value for figure in figures]
    known = [number for number in values if number is not None]
    ends = (value(first, min(known, default=None)), value(first, max(known, default=None)))
    return (
        first.rungs[place].definition,
        value(first, values[0]),
        *(ends if len(figures) > 1 else ()),
    )


def remarks(made: SecondOpinion) -> list[str]:
    """Errors and remarks, each once with the files that it holds for."""
    places: dict[str, list[str]] = {}
    for one in made.opinions:
        place = str(_sources(made).index(one.source))
        for text in [*([one.error] if one.error else []), *one.remarks]:
            places.setdefault(f"{one.peer}: {clean(text)}", []).append(place)
    return [
        f"{text} (file{'s' if len(found) > 1 else ''} {', '.join(found)})" for text, found in places.items()
    ]
