"""What the recorded steps would have taken with their gradients in other buckets, on this link or on another one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from stepscope.audit.case import Case
from stepscope.audit.causes.finding import in_step
from stepscope.audit.causes.rounds import Round, reducing_rounds
from stepscope.audit.rebucket import Timing, cut, rate_of, rebucketed, transfers_of, works
from stepscope.audit.schedule import floor
from stepscope.replay.change import NOTHING, Change
from stepscope.replay.contended import Contended, slowdown
from stepscope.replay.graph import StepGraph
from stepscope.stats import median
from stepscope.units import NS_PER_MS

_CLOSE_ENOUGH = 1e-3
_SLOWEST, _QUICKEST = 2.0, 0.25
"""Within these factors host time is looked for that makes a replayed step as long as an unrecorded one."""

Steps = dict[int, float]
"""Step number to ns: the mean over ranks."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """Steps with their gradients in other buckets; ns. bytes: of each bucket, in launch order.

    floor: exposed time that no schedule of these buckets avoids, median over steps of the mean over ranks; None where
    it was not asked for.
    """

    bytes: list[int]
    steps: Steps
    floor: float | None

    def gains(self, now: Steps, most: Steps) -> Steps:
        """By step, how much shorter it is than now, and no more than `most`; ns."""
        return {number: min(now[number] - taken, most[number]) for number, taken in self.steps.items()}


class Rebucketing:
    """The steps of a case whose gradients DDP's reducer reduced, to be cut in other ways.

    host_time: factor on what host threads do, on a CPU. contended: on a CPU compute is slower beside transfers, as it was
    recorded to be; else it is as long as it was wherever the transfers are.
    """

    def __init__(self, case: Case, *, host_time: float = 1.0, contended: bool = True) -> None:
        self._case, self._host_time = case, host_time
        self.on_cpu = all(recording.device == "cpu" for recording in case.recordings)
        known = self.on_cpu and contended
        self.slowdown = case.shared("slowdown", lambda: _slowdown(case)) if known else None
        self.rounds = case.shared("reduced", lambda: _all_reduced(case))
        self.steps = list(self.rounds)

    @property
    def present(self) -> list[int]:
        """The recorded buckets; bytes, in launch order."""
        example = next(iter(self.rounds.values()))[0]
        return [op.bytes or 0 for op in example.ops]

    def rates(self, time: Timing) -> Steps:
        """By step, how many times as long as a timing says its transfers took."""
        return {
            number: rate_of(rounds[0], works(self._case.graphs[number]), time)
            for number, rounds in self.rounds.items()
        }

    def recorded(self) -> Steps:
        """The steps as they were."""
        return {number: self._pace(number, NOTHING) for number in self.steps}

    def as_they_are(self, time: Timing, rates: Steps) -> Steps:
        """The steps in the recorded buckets, where messages take `time`, times a rate by step."""
        return {
            number: self._pace(number, self._transfers(number, time, rates[number])) for number in self.steps
        }

    def most(self, now: Steps, own: Steps) -> Steps:
        """By step, what it would be shorter by if no transfer took any time: more than that no buckets gain.

        now, own: the steps in the recorded buckets, as modelled on a link and on the run's own. Were that model a little off
        in the one, it would else promise what the step does not have.
        """
        recorded = self.recorded()
        instant = self.cut([sum(self.present) + 1], lambda size: 0.0, dict.fromkeys(self.steps, 1.0))
        left = instant.steps if instant is not None else {}
        return {
            number: max(0.0, recorded[number] + now[number] - own[number] - left.get(number, 0.0))
            for number in now
        }

    def cut(self, caps: Sequence[float], time: Timing, rates: Steps) -> Outcome | None:
        """The steps in buckets of some caps in bytes, where messages take `time`, times a rate by step.

        None where no step can tell.
        """
        taken: Steps = {}
        floors = []
        for number, rounds in self.rounds.items():
            here = _times(time, rates[number])
            change = rebucketed(self._case, self._case.graphs[number], rounds, here, caps)
            if change is not None:
                taken[number] = self._pace(number, change)
                floors.append(self._floor(rounds, here, caps))
        if not taken:
            return None
        example = self.rounds[next(iter(taken))][0]
        return Outcome(cut(self._case, example, caps).bytes, taken, median(floors))

    def _transfers(self, number: int, time: Timing, rate: float) -> Change:
        work = works(self._case.graphs[number])
        return Change(
            transfers={
                key: rate * time(op.bytes or 0) / work[key]
                for round_ in self.rounds[number]
                for key, op in zip(round_.keys, round_.ops, strict=True)
                if work.get(key)
            }
        )

    def _pace(self, number: int, change: Change) -> float:
        graph = self._case.graphs[number]
        if self.on_cpu:
            ends = {round_.index: round_.end for round_ in self.rounds[number]}
            taken = Contended(graph, self.slowdown or 1.0, ends, self._host_time).pace(change)
        else:
            taken = graph.pace(change)
        return sum(taken.values()) / len(taken)

    def _floor(self, rounds: Sequence[Round], time: Timing, caps: Sequence[float]) -> float:
        floors = [
            floor(
                transfers_of(cut(self._case, round_, caps), time),
                round_.end,
                self._case.recordings[round_.index].lanes,
            )
            for round_ in rounds
        ]
        return sum(floors) / len(floors)


def unrecorded_step(case: Case) -> float | None:
    """A step without the profiler in the same run, in ns; None where the run does not tell."""
    cost = (case.run or {}).get("profiler_cost")
    return cost["unprofiled_ms"] * NS_PER_MS if cost else None


def host_time(case: Case) -> float:
    """On CPUs the factor on what host threads do that makes the replayed step as long as an unrecorded one; else 1.

    Recording slows hosts, not the link; and a machine is not equally quick at all times.
    """
    found: float = case.shared("host time", lambda: _host_time(case))
    return found


def _host_time(case: Case) -> float:
    unrecorded, as_recorded = unrecorded_step(case), Rebucketing(case)
    if unrecorded is None or not as_recorded.on_cpu or not as_recorded.recorded():
        return 1.0
    low, high = _QUICKEST, _SLOWEST
    while high - low > _CLOSE_ENOUGH:
        middle = (low + high) / 2
        if median(list(Rebucketing(case, host_time=middle).recorded().values())) < unrecorded:
            low = middle
        else:
            high = middle
    return (low + high) / 2


def _times(time: Timing, rate: float) -> Timing:
    return lambda size: rate * time(size)


def _slowdown(case: Case) -> float | None:
    return slowdown(zip(case.recordings, case.timelines, strict=True))


def _all_reduced(case: Case) -> dict[int, list[Round]]:
    found = {number: _reduced(case, graph) for number, graph in case.graphs.items()}
    return {number: rounds for number, rounds in found.items() if rounds}


def _reduced(case: Case, graph: StepGraph) -> list[Round]:
    """Of each rank the last backward that DDP's reducer reduced, where all its gradients are known; else none."""
    found = []
    for one in in_step(case, graph):
        reduced = [round_ for round_ in reducing_rounds(one) if round_.reduced_within]
        if not reduced or not reduced[-1].complete:
            return []
        found.append(reduced[-1])
    return found
