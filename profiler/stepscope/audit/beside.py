"""What compute lost to the collectives that ran beside it: stated apart from what communication cost (METRICS section 6)."""

from __future__ import annotations

from dataclasses import dataclass

from stepscope.audit.case import Case
from stepscope.replay.contention import Contention, contention
from stepscope.stats import bootstrap_interval, median
from stepscope.units import ns_to_ms

_MOST_OF_IT = 0.5
"""Of less than this share of the compute beside collectives nothing is said of the rest: on a CPU nearly all of backward's
operators run beside transfers in every step."""


@dataclass(frozen=True, slots=True)
class Apart:
    """A step's contention in ms: the median over valid steps of the mean over ranks, and its interval.

    compared: the share of the compute beside collectives of which it is known what the same takes alone.
    """

    ms: float
    interval: tuple[float, float] | None
    compared: float


def contentions(case: Case) -> dict[int, Contention]:
    """By recording, its contention, where enough of its compute ran both beside collectives and without."""

    def measured() -> dict[int, Contention]:
        steps = {one.number for one in case.rank_steps()}
        found = {k: contention(one, case.timelines[k], steps) for k, one in enumerate(case.recordings)}
        return {k: one for k, one in found.items() if one is not None}

    return case.shared("contention", measured)


def contention_apart(case: Case) -> Apart | None:
    """What the job's compute loses to its collectives; None where too little of it ran both beside them and alone."""
    found = contentions(case)
    numbers = sorted({one.number for one in case.rank_steps()})
    compared = sum(one.compared for one in found.values()) / max(1, len(found))
    if not numbers or compared < _MOST_OF_IT:
        return None
    by_rank = [one.by_step(numbers) for one in found.values()]
    by_step = [ns_to_ms(sum(lost[number] for lost in by_rank) / len(by_rank)) for number in numbers]
    return Apart(median(by_step), bootstrap_interval(by_step), compared)
