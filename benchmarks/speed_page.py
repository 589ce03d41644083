"""What was measured as tables: aligned for the terminal, and Markdown as it stands."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

from benchmarks.budget import AIM_OF_FLOOR, AIMS, BUDGET, JUDGED_FROM, doubts, over_budget
from benchmarks.contest import OURS, Contestant, ratios, times
from benchmarks.sources import Measured

_HEAD = ("", "wall, s", "CPU, s", "MB/s", "peak memory, MB", "x floor", "it found")
_NUMBERS = range(1, 6)
"""Columns that are set to the right."""


@dataclass(frozen=True, slots=True)
class Contest:
    """A trace and all contestants on it, the floor first."""

    trace: Measured
    contestants: Sequence[Contestant]

    @property
    def judged(self) -> bool:
        """Whether the trace is large enough for the budgets."""
        return self.trace.text_bytes >= JUDGED_FROM

    def study(self) -> dict[str, Any]:
        """All figures, for a file; not where this machine has its files."""
        return {
            "name": self.trace.name,
            "text_bytes": self.trace.text_bytes,
            "gzipped_bytes": self.trace.gzipped_bytes,
            "contestants": [
                {name: value for name, value in asdict(one).items() if name not in ("python", "path")}
                for one in self.contestants
            ],
        }


def page(contests: Sequence[Contest], command: str, machine: str) -> str:
    """The page of the gallery."""
    judged = ", ".join(f"{name} {allowed:g}" for name, allowed in BUDGET.items())
    head = f"""\
# Speed beside its peers

Made by `{command}`, {machine}; all figures are in [study.json](study.json).

Each contestant runs in a process of its own, in turns, from start to exit. It was started once before, unmeasured: so all
are compiled. Wall time is the median of the rounds (least to most), x floor the median of the ratios within a round. The
*floor* inflates the file and looks at every byte once: no reader on one thread is faster. A peer does not do the same:
HolisticTraceAnalysis computes one overlap, torch-tb-profiler its overview, and TraceLens a breakdown of the device's time.
Why their figures differ: [a second opinion](../second-opinion/README.md).

*Grown* is the real trace over and over, each copy later and with ids of its own. *With Python stacks* are the frames of a
recorded run in the same device trace. `make bench` fails where a grown trace takes more times the floor than its budget
({judged}) in every round in which the floor hardly waited for a processor.
"""
    return "\n".join([head, *("\n".join(section(contest)) for contest in contests)])


def section(contest: Contest) -> Iterator[str]:
    """One trace: heading, table, and what follows from it."""
    trace = contest.trace
    yield f"## {trace.name}: {trace.text_bytes / 1e6:,.0f} MB ({trace.gzipped_bytes / 1e6:,.1f} MB gzipped)\n"
    yield from _table([_HEAD, *(_row(one, contest) for one in contest.contestants)])
    yield ""
    if lines := [f"- {line}" for line in _conclusions(contest)]:
        yield from (*lines, "")


def _table(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    widths = [max(len(row[column]) for row in rows) for column in range(len(_HEAD))]
    rule = ["-" * (width - 1) + ":" if i in _NUMBERS else "-" * width for i, width in enumerate(widths)]
    for row in (rows[0], rule, *rows[1:]):
        cells = (
            text.rjust(width) if i in _NUMBERS else text.ljust(width)
            for i, (text, width) in enumerate(zip(row, widths, strict=True))
        )
        yield f"| {' | '.join(cells)} |"


def _row(one: Contestant, contest: Contest) -> Sequence[str]:
    if one.failure:
        return (one.label, *("" for _ in _NUMBERS), f"failed: {one.failure}")
    return (
        one.label,
        _span(one.seconds, 2),
        f"{median(one.cpu_seconds):.2f}",
        f"{contest.trace.text_bytes / 1e6 / median(one.seconds):.0f}",
        f"{max(one.peak_mb):.0f}",
        _span(ratios(one, contest.contestants[0]), 2),
        one.found,
    )


def _span(values: Sequence[float], digits: int) -> str:
    return f"{median(values):.{digits}f} ({min(values):.{digits}f}..{max(values):.{digits}f})"


def _conclusions(contest: Contest) -> Iterator[str]:
    """The whole audit against floor and peers with what is aimed at, then what is over its budget."""
    by_name = {one.name: one for one in contest.contestants}
    audit = by_name["audit"]
    if (floors := times(audit, by_name["floor"])) and contest.judged:
        yield f"Whole audit: {floors:.2f} times the floor ({_aim(AIM_OF_FLOOR, floors <= AIM_OF_FLOOR)})."
    for name, peer in by_name.items():
        if name not in OURS and not peer.failure and (faster := times(peer, audit)):
            aim = AIMS.get(name)
            aimed = f" ({_aim(aim, faster >= aim)})" if aim and contest.judged else ""
            memory = max(audit.peak_mb) / max(peer.peak_mb)
            peer_name = peer.label.partition(":")[0]
            yield f"Whole audit: {faster:.1f} times as fast as {peer_name}{aimed}, {memory:.2f} of its peak memory."
    if contest.judged:
        yield from (f"{line}." for line in over_budget(contest.contestants))
        yield from (f"{line}." for line in doubts(contest.contestants))


def _aim(aim: float, held: bool) -> str:
    return f"aim: {aim:g}, {'held' if held else '**not held**'}"
