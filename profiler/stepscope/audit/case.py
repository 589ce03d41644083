"""What a detector of causes gets: the measured steps, the ranks laid side by side, and a replay to price a cause with."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from stepscope.audit.basis import Basis
from stepscope.audit.result import Thresholds
from stepscope.audit.step import MeasuredStep
from stepscope.ranks.pairing import Pairing
from stepscope.replay.change import Change
from stepscope.replay.graph import StepGraph
from stepscope.replay.timeline import Timeline
from stepscope.stats import median
from stepscope.trace.recording import CollectiveOp, Recording

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class RankStep:
    """One valid step of one recording."""

    index: int
    """Of the recording in the case."""
    recording: Recording
    basis: Basis
    step: MeasuredStep
    _kept: dict[str, Any] = field(default_factory=dict, init=False, repr=False, compare=False)

    def kept(self, what: str, make: Callable[[], _T]) -> _T:
        """Something that several detectors need of this step, made by the first of them that asks for it."""
        if what not in self._kept:
            self._kept[what] = make()
        found: _T = self._kept[what]
        return found

    @property
    def number(self) -> int:
        """The step's number."""
        return self.step.window.number

    @property
    def ops(self) -> Sequence[CollectiveOp]:
        """The step's collectives, by start."""
        return self.basis.ops_of.get(self.number, ())

    @property
    def rank(self) -> int | None:
        """The rank that was recorded, if the file says it."""
        return self.recording.header.rank


@dataclass(frozen=True, slots=True)
class Price:
    """What a cause costs a step: measured less replayed without it, mean over ranks; `ms` is the median over steps."""

    ms: float
    by_step: dict[int, float]


@dataclass(frozen=True, slots=True)
class Case:
    """One job as audited so far."""

    recordings: Sequence[Recording]
    parts: Sequence[tuple[Basis, Sequence[MeasuredStep]]]
    pairing: Pairing
    graphs: Mapping[int, StepGraph]
    """Step number to its graph, for the valid steps that could be drawn as one."""
    thresholds: Thresholds
    run: Mapping[str, Any] | None = None
    """run.json of a recorded run."""
    timelines: Sequence[Timeline] = ()
    """Of the recordings, as the replay reads them."""
    _shared: dict[object, Any] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not self.timelines:
            made = [Timeline(recording.trace) for recording in self.recordings]
            object.__setattr__(self, "timelines", made)

    def shared(self, what: object, make: Callable[[], _T]) -> _T:
        """Something that several detectors need, made by the first of them that asks for it."""
        if what not in self._shared:
            self._shared[what] = make()
        found: _T = self._shared[what]
        return found

    def rank_steps(self) -> Sequence[RankStep]:
        """Every valid step of every recording."""
        return self.shared("rank steps", self._rank_steps)

    def _rank_steps(self) -> list[RankStep]:
        return [
            RankStep(index, basis.recording, basis, step)
            for index, (basis, steps) in enumerate(self.parts)
            for step in steps
            if step.window.number not in basis.invalid
        ]

    def price(self, change_of: Callable[[StepGraph], Change | None]) -> Price | None:
        """What it costs that something is as it is and not as `change_of` makes it; None where no step can tell.

        change_of gives None for a step that the cause is not in: that step counts with a price of zero.
        """
        found: dict[int, float] = {}
        for number, graph in self.graphs.items():
            change = change_of(graph)
            if change is None:
                found[number] = 0.0
                continue
            now, then = graph.pace(), graph.pace(change)
            gains = [now[index] - taken for index, taken in then.items()]
            found[number] = sum(gains) / len(gains) / 1e6
        return Price(median(list(found.values())), found) if any(found.values()) else None

    @property
    def step_ms(self) -> float | None:
        """How long a step took: the median over valid steps of the mean over ranks, in ms; None without one."""
        by_step: dict[int, list[float]] = defaultdict(list)
        for one in self.rank_steps():
            graph = self.graphs.get(one.number)
            took = graph.pace().get(one.index) if graph else None
            by_step[one.number].append(one.step.wall if took is None else took)
        return (
            median([sum(of_ranks) / len(of_ranks) for of_ranks in by_step.values()]) / 1e6
            if by_step
            else None
        )
