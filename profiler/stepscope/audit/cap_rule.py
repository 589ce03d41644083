"""Which of several bucket caps to take (METRICS, Prediction): the one rule of audits, findings and predictions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from stepscope.audit.causes.finding import MINIMUM_SHARE
from stepscope.stats import bootstrap_interval, median

CAPS_MIB = (0.5, 1.0, 2.0, 5.0, 10.0, 25.0, 50.0, 100.0)
"""What `bucket_cap_mb` is tried at: the usual settings, DDP's default of 25 among them."""
_DEFAULT_MIB = 25.0


@dataclass(frozen=True, slots=True)
class Candidate:
    """A cap in MiB: its buckets in bytes, and by step how much shorter than the present buckets they make it, in ns."""

    cap_mb: float
    bytes: Sequence[int]
    gains: Mapping[int, float]

    @property
    def gain(self) -> float:
        """Median over steps; ns."""
        return median(list(self.gains.values()))


@dataclass(frozen=True, slots=True)
class Choice:
    """The cap to take, or None for the present one. alike_mb: the caps it was chosen among, itself one of them."""

    cap_mb: float | None
    why: str
    alike_mb: tuple[float, ...] = ()


def choose(candidates: Sequence[Candidate], step: float, present: Sequence[int] = ()) -> Choice:
    """The middle one of the caps that can't be told from the best; the present one where the gain is no more than noise.

    A cap too small pays latency, one too large has nothing to hide behind: the middle is far from both. step: ns. present: the
    buckets as they are, in bytes; a cap that gives them again changes nothing.
    """
    tied = alike(candidates, step, present)
    if not tied:
        return Choice(None, "no bucket cap is predicted to make the step shorter by 1 % or more")
    chosen = middle(tied)
    interval = bootstrap_interval(list(chosen.gains.values()))
    if interval is None:
        return Choice(None, "one recorded step does not tell a gain from noise; record more of them")
    if interval[0] <= 0:
        return Choice(None, f"in some of the recorded steps {chosen.cap_mb:g} MiB would have gained nothing")
    twins = [[one.cap_mb for one in candidates if list(one.bytes) == list(kept.bytes)] for kept in tied]
    return Choice(chosen.cap_mb, _why(twins), tuple(one.cap_mb for one in tied))


def alike(candidates: Sequence[Candidate], step: float, present: Sequence[int] = ()) -> list[Candidate]:
    """Those that gain more than noise and can't be told from the best, by size; caps with the same buckets count once."""
    other = [one for one in _distinct(candidates) if list(one.bytes) != list(present)]
    worth = [one for one in other if one.gain >= MINIMUM_SHARE * step]
    best = max(worth, key=lambda one: one.gain, default=None)
    return [] if best is None else [one for one in worth if not _told_apart(best, one, step)]


def middle(tied: Sequence[Candidate]) -> Candidate:
    """Of an even number the larger one: fewer buckets are fewer launches."""
    return tied[len(tied) // 2]


def _distinct(candidates: Sequence[Candidate]) -> list[Candidate]:
    """Of caps that give the same buckets the one closest to DDP's own."""
    found: dict[tuple[int, ...], Candidate] = {}
    for one in sorted(candidates, key=lambda one: abs(one.cap_mb - _DEFAULT_MIB)):
        found.setdefault(tuple(one.bytes), one)
    return sorted(found.values(), key=lambda one: one.cap_mb)


def _told_apart(best: Candidate, other: Candidate, step: float) -> bool:
    """Whether a step is longer than with the best by more than noise, in the median and in the interval over steps."""
    more = [best.gains[number] - gain for number, gain in other.gains.items() if number in best.gains]
    interval = bootstrap_interval(more)
    return median(more) >= MINIMUM_SHARE * step and (interval is None or interval[0] > 0)


def _why(twins: Sequence[Sequence[float]]) -> str:
    """twins: of each cap that can't be told from the best, all caps that give its buckets."""
    if len(twins) == 1:
        alone = "no other cap comes within 1 % of that step"
        return alone if len(twins[0]) == 1 else f"{_either(twins[0])} MiB give the same buckets, and {alone}"
    names = [_either(caps) + (" (the same buckets)" if len(caps) > 1 else "") for caps in twins]
    listed = f"{', '.join(names[:-1])} and {names[-1]}"
    which = "larger" if len(names) == 2 else "middle"
    return f"{listed} MiB can't be told apart, and this is the {which} of them"


def _either(caps: Sequence[float]) -> str:
    """`5`, or `0.5, 1 or 2`."""
    *others, last = sorted(caps)
    return f"{', '.join(f'{cap:g}' for cap in others)}{' or ' if others else ''}{last:g}"
