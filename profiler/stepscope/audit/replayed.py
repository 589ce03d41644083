"""The replays of an audit: the graph of each step, drawn when somebody first asks for one (METRICS section 6)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from stepscope.ranks.pairing import Pairing
from stepscope.replay.graph import StepGraph, build
from stepscope.replay.timeline import Timeline
from stepscope.trace.recording import Recording


class StepGraphs(Mapping[int, StepGraph]):
    """Step number to its graph, for those of the wanted steps that can be drawn as one.

    Drawing them takes longer than all of the rest of an audit; nothing is drawn for a job without anything to price.
    """

    def __init__(
        self,
        recordings: Sequence[Recording],
        pairing: Pairing,
        numbers: Sequence[int],
        timelines: Sequence[Timeline],
    ) -> None:
        self._recordings, self._pairing, self._numbers = recordings, pairing, numbers
        self._timelines = timelines

    @cached_property
    def _drawn(self) -> dict[int, StepGraph]:
        built = {
            number: build(self._recordings, self._pairing, number, self._timelines)
            for number in self._numbers
        }
        return {number: graph for number, graph in built.items() if graph is not None}

    def __getitem__(self, number: int) -> StepGraph:
        return self._drawn[number]

    def __iter__(self) -> Iterator[int]:
        return iter(self._drawn)

    def __len__(self) -> int:
        return len(self._drawn)


@dataclass(frozen=True, slots=True)
class Priced:
    """One step of one rank as its replay has it; ns.

    took: from one drained device to the next; the host's window where something blocks the host in it. cost: what of it
    is communication's.
    """

    took: float
    cost: float


def priced_steps(graphs: Mapping[int, StepGraph]) -> dict[int, dict[int, Priced]]:
    """By the recording's place in the list, step number to its replay; steps without a graph are absent."""
    found: dict[int, dict[int, Priced]] = defaultdict(dict)
    for number, graph in graphs.items():
        took = graph.pace()
        for index, cost in graph.cost().items():
            found[index][number] = Priced(took[index], cost)
    return found
