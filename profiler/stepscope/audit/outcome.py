"""What the recorded steps would have taken with their gradients in other buckets, on this link or on another one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from stepscope.audit.case import Case
from stepscope.audit.causes.finding import in_step
from stepscope.audit.causes.rounds import Round, reducing_rounds
from stepscope.audit.rebucket import Timing, cut, rate_of, rebucketed, transfers_of, works
from stepscope.audit.schedule import floor
from stepscope.replay.change import Change
from stepscope.replay.graph import StepGraph
from stepscope.stats import median


@dataclass(frozen=True, slots=True)
class Outcome:
    """Steps with their gradients in other buckets; ns. bytes: of each bucket, in launch order.

    steps: by number, the mean over ranks. floor: exposed time that no schedule of these buckets avoids, median over steps of the
    mean over ranks.
    """

    bytes: list[int]
    steps: dict[int, float]
    floor: float


class Rebucketing:
    """The steps of a case whose gradients DDP's reducer reduced, to be cut in other ways.

    time: what a message of so many bytes took on the link, as it was modelled. host_time: factor on what host threads do.
    """

    def __init__(self, case: Case, time: Timing, *, host_time: float = 1.0) -> None:
        self._case, self._time, self._host_time = case, time, host_time
        self.rounds = {number: _reduced(case, graph) for number, graph in case.graphs.items()}
        self.steps = [number for number, rounds in self.rounds.items() if rounds]
        self._rates = {
            number: rate_of(self.rounds[number][0], works(case.graphs[number]), time) for number in self.steps
        }

    def now(self) -> dict[int, float]:
        """The steps in the recorded buckets, each transfer as long as modelled."""
        return {number: self._pace(number, self._as_modelled(number)) for number in self.steps}

    def cut(self, caps: Sequence[float], time: Timing | None = None) -> Outcome | None:
        """The steps in buckets of some caps in bytes, over a link on which messages take `time`; None where no step can tell."""
        taken: dict[int, float] = {}
        for number in self.steps:
            change = rebucketed(
                self._case, self._case.graphs[number], self.rounds[number], self._slowed(number, time), caps
            )
            if change is not None:
                taken[number] = self._pace(number, change)
        if not taken:
            return None
        number = next(iter(taken))
        return Outcome(cut(self._case, self.rounds[number][0], caps).bytes, taken, self._floor(caps, time))

    def _slowed(self, number: int, time: Timing | None) -> Timing:
        rate, wanted = self._rates[number], time or self._time
        return lambda size: rate * wanted(size)

    def _as_modelled(self, number: int) -> Change:
        work, time = works(self._case.graphs[number]), self._slowed(number, None)
        return Change(
            transfers={
                key: time(op.bytes or 0) / work[key]
                for round_ in self.rounds[number]
                for key, op in zip(round_.keys, round_.ops, strict=True)
                if work.get(key)
            }
        )

    def _pace(self, number: int, change: Change) -> float:
        taken = self._case.graphs[number].pace(replace(change, host_time=self._host_time))
        return sum(taken.values()) / len(taken)

    def _floor(self, caps: Sequence[float], time: Timing | None) -> float:
        floors = []
        for number in self.steps:
            of_ranks = []
            for round_ in self.rounds[number]:
                one = cut(self._case, round_, caps)
                todo = transfers_of(one, self._slowed(number, time))
                of_ranks.append(floor(todo, round_.end, self._case.recordings[round_.index].lanes))
            floors.append(sum(of_ranks) / len(of_ranks))
        return median(floors)


def _reduced(case: Case, graph: StepGraph) -> list[Round]:
    """Of each rank the last backward that DDP's reducer reduced, where all its gradients are known; else none."""
    found = []
    for one in in_step(case, graph):
        reduced = [round_ for round_ in reducing_rounds(one) if round_.reduced_within]
        if not reduced or not reduced[-1].complete:
            return []
        found.append(reduced[-1])
    return found
