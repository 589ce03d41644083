"""What the interactive timeline is drawn from: the audit's coarse lanes and its collectives, as columns, on one axis a step.

The terminal's lanes (`stepscope_reports.lanes`) draw the same data. Times are on their rank's own clock, as in the audit;
a view's `shift` takes them to the step's common axis.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from stepscope.audit.result import Audit, Collective, Rank, Step
from stepscope.units import size
from stepscope_reports import figures
from stepscope_reports.plain import clean

MOST_BYTES = 2_000_000
"""Of the timeline in a page, as far as can be told beforehand; steps beyond that are left out, and the page says so."""

MOST_RANKS = 64
"""In the timeline: those that the others wait for, and the first."""

_BYTES_OF_A_COLLECTIVE, _BYTES_OF_A_SPAN = 130, 24

_FACTS = (
    "bytes",
    "seq",
    "ready_ms",
    "launch_ms",
    "start_ms",
    "duration_ms",
    "wait_ms",
    "wire_ms",
    "hidden_backward_ms",
    "exposed_ms",
    "bus_gb_per_s",
)
_WORDS = ("kind", "role", "phase", "group", "dtype", "name")
_LANES = ("forward", "backward", "optimizer", "exposed")


def timeline(audit: Audit) -> dict[str, Any] | None:
    """The page's data; None where no step has a timeline.

    `views` has an entry a rank and step: their places in `ranks` and `steps`, lanes as [start, end, start, end, ...], and
    `collectives` as columns; `index` is a collective's place in the audit's, and words are places in `words`.
    """
    drawable = _drawable(audit)
    steps = _chosen(audit, drawable)
    ranks = figures.shown(audit, MOST_RANKS)
    if not steps:
        return None
    words: dict[str, int] = {}
    views = [_view(view, steps.index(view.step.step), words) for view in drawable if view.step.step in steps]
    start = figures.typical_step(audit)
    return {
        "ranks": [_rank_label(audit.ranks[place], place) for place in ranks],
        "ranks_left_out": len(audit.ranks) - len(ranks),
        "steps": [{"number": number, "note": _note(drawable, number)} for number in steps],
        "start": steps.index(start[1].step) if start and start[1].step in steps else 0,
        "views": views,
        "words": list(words),
        "left_out": len({view.step.step for view in drawable}) - len(steps),
    }


class _Drawable:
    """One step of one file with its collectives."""

    def __init__(self, place: int, rank: Rank, step: Step) -> None:
        self.place, self.rank, self.step = place, rank, step
        self.collectives: list[tuple[int, Collective]] = []
        self.shift = step.start_ms

    @property
    def bytes(self) -> int:
        """About how much of the page it takes."""
        lanes = self.step.timeline
        spans = sum(len(getattr(lanes, name)) for name in _LANES) if lanes else 0
        return len(self.collectives) * _BYTES_OF_A_COLLECTIVE + spans * _BYTES_OF_A_SPAN


def drawn_ranks(audit: Audit) -> list[Rank]:
    """The ranks that the timeline has, in its order."""
    return [audit.ranks[place] for place in figures.shown(audit, MOST_RANKS)]


def _drawable(audit: Audit) -> list[_Drawable]:
    found = {
        (rank.source, step.step): _Drawable(place, rank, step)
        for place, rank in enumerate(drawn_ranks(audit))
        for step in rank.steps
        if step.timeline is not None
    }
    for index, one in enumerate(audit.collectives):
        if one.step is not None and (one.source, one.step) in found:
            found[one.source, one.step].collectives.append((index, one))
    views = list(found.values())
    _lay_together(audit, views)
    return views


def _lay_together(audit: Audit, views: Sequence[_Drawable]) -> None:
    """Put the ranks of each step on one axis by their clocks; each on its own where those can't be those of one step."""
    offsets = {clock["host"]: clock["offset_ms"] for clock in audit.clocks}
    by_step: dict[int, list[_Drawable]] = defaultdict(list)
    for view in views:
        by_step[view.step.step].append(view)
    for members in by_step.values():
        bases = [view.rank.start_ns for view in members]
        known = [base for base in bases if base is not None]
        if len(known) < len(members):
            continue
        zero = min(known)
        on_axis = [
            (base - zero) / 1e6 - offsets.get(view.rank.host, 0.0)
            for base, view in zip(known, members, strict=True)
        ]
        begins = [base + view.step.start_ms for base, view in zip(on_axis, members, strict=True)]
        if max(begins) - min(begins) <= max(view.step.wall_ms for view in members):
            for base, view in zip(on_axis, members, strict=True):
                view.shift = min(begins) - base


def _chosen(audit: Audit, drawable: Sequence[_Drawable]) -> list[int]:
    """The steps to draw, in order: the typical one first, then the longest, then the others as far as there is room."""
    length: dict[int, float] = defaultdict(float)
    needed: dict[int, int] = defaultdict(int)
    left_out = set()
    for view in drawable:
        number = view.step.step
        length[number] = max(length[number], view.step.wall_ms)
        needed[number] += view.bytes
        if not view.step.valid:
            left_out.add(number)
    typical = figures.typical_step(audit)
    first = typical[1].step if typical else None
    longest = max(
        (number for number in length if number not in left_out), key=length.__getitem__, default=None
    )
    order = sorted(
        needed, key=lambda number: (number != first, number != longest, number in left_out, number)
    )
    chosen: list[int] = []
    room = MOST_BYTES
    for number in order:
        if not chosen or needed[number] <= room:
            chosen.append(number)
            room -= needed[number]
    return sorted(chosen)


def _note(drawable: Sequence[_Drawable], number: int) -> str:
    """Why a step is not counted; empty of one that is."""
    reasons = [
        view.step.why_invalid or "" for view in drawable if view.step.step == number and not view.step.valid
    ]
    return clean(reasons[0] or "not counted") if reasons else ""


def _rank_label(rank: Rank, place: int) -> str:
    return f"file {place + 1}" if rank.rank is None else f"rank {rank.rank}"


def _view(view: _Drawable, step: int, words: dict[str, int]) -> dict[str, Any]:
    lanes = view.step.timeline
    drawn = {**figures.compute_lanes(lanes), "exposed": lanes.exposed} if lanes else {}
    ordered = sorted(view.collectives, key=lambda pair: pair[1].start_ms)
    columns: dict[str, list[Any]] = {"index": [index for index, _ in ordered]}
    for name in _FACTS:
        columns[name] = [getattr(one, name) for _, one in ordered]
    for name in _WORDS:
        columns[name] = [_word(getattr(one, name), words) for _, one in ordered]
    columns["label"] = [_word(label, words) for label in _labels([one for _, one in ordered])]
    return {
        "rank": view.place,
        "step": step,
        "shift": view.shift,
        "wall": view.step.wall_ms,
        "begin": view.step.start_ms,
        "collectives": columns,
        **{name: [time for span in spans for time in span] for name, spans in drawn.items()},
    }


def _word(text: str | None, words: dict[str, int]) -> int | None:
    return None if text is None else words.setdefault(clean(text), len(words))


def _labels(ordered: Sequence[Collective]) -> list[str]:
    """What each is called: gradient buckets by their place, as in the table of buckets; others by kind and role."""
    labels, bucket = [], 0
    for one in ordered:
        kind = figures.KINDS.get(one.kind, one.kind)
        if one.gradient:
            labels.append(f"bucket {bucket}" + (f", {size(one.bytes)}" if one.bytes is not None else ""))
            bucket += 1
        else:
            labels.append(f"{kind}, {one.role}")
    return labels
