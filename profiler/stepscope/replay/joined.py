"""Collectives as the ranks share them: arrivals, the transfer, and everybody's end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from stepscope.ranks.clocks import Clock, fit_clocks
from stepscope.ranks.pairing import Pairing
from stepscope.replay.draft import Draft
from stepscope.replay.network import Edge
from stepscope.trace import collectives
from stepscope.trace.recording import CollectiveOp, Recording

Key = tuple[int, int]
"""A collective as one rank saw it: the recording's place in the list, and the event's row."""


@dataclass(frozen=True, slots=True)
class Ends:
    """Where a rank's part in a collective begins and ends in the graph."""

    arrival: int
    leave: int
    op: CollectiveOp
    owner: int
    end: int
    """When it was over, on the recording's clock in ns: the event's end, or sooner where somebody went on before that."""


class Meetings:
    """The collectives of one step, drawn once for all ranks.

    No data moves before the last rank arrives. The kinds with no common end (broadcast, reduce, send and receive) wait
    only for the ranks that had arrived by the time they ended: which of them is the root, the trace does not say.
    """

    def __init__(self, draft: Draft, shifts: Sequence[int], over: Mapping[Key, int]) -> None:
        """over: when collectives were over whose event ends later than that; ns on the recording's clock."""
        self._draft, self._shifts, self._over = draft, shifts, over
        self.ends: dict[Key, Ends] = {}
        self.numbers: dict[Key, int] = {}

    def draw(self, recordings: Sequence[Recording], pairing: Pairing, step: int) -> None:
        """Points for every collective of the step, the paired ones joined across ranks."""
        mates: dict[Key, int] = {
            (index, op.row): number
            for number, one in enumerate(pairing.paired)
            for index, op in one.members.items()
        }
        told = {number: one.told for number, one in enumerate(pairing.paired) if one.told is not None}
        groups: dict[Key | int, dict[int, CollectiveOp]] = {}
        for index, recording in enumerate(recordings):
            for op in recording.collectives:
                if op.step == step:
                    key = (index, op.row)
                    groups.setdefault(mates.get(key, key), {})[index] = op
        for number, (group, members) in enumerate(groups.items()):
            for index, op in members.items():
                self.numbers[index, op.row] = number
            on_cpu = all(recordings[index].device == "cpu" for index in members)
            self._meet(members, number, told.get(group) if isinstance(group, int) else None, on_cpu=on_cpu)

    def _meet(
        self, members: Mapping[int, CollectiveOp], number: int, wire: int | None, *, on_cpu: bool
    ) -> None:
        """wire: its transfer time where ranks that are not drawn told it; the members wait for those as they did."""
        begin = {index: op.start + self._shifts[index] for index, op in members.items()}
        over = {index: self._over.get((index, op.row), op.end) for index, op in members.items()}
        end = {index: max(begin[index], over[index] + self._shifts[index]) for index in members}
        arrival = {index: self._draft.point(begin[index], index) for index in members}
        leave = {index: self._draft.point(end[index], index) for index in members}
        together = next(iter(members.values())).kind in collectives.SYNCHRONISING
        last, first = max(begin.values()), min(end.values())
        if wire is not None:
            last = max(last, first - wire)
        if together and last <= first:
            moved = self._draft.transfer(last, first, min(members), number, shared=on_cpu)
            for index, op in members.items():
                self._draft.edge(arrival[index], moved, Edge.ARRIVAL, 0, index, op.row)
                self._draft.edge(moved, leave[index], Edge.LEAVE, end[index] - first, index, op.row)
        else:
            self._each_for_itself(members, number, (begin, end), (arrival, leave))
        for index, op in members.items():
            self._draft.edge(arrival[index], leave[index], Edge.RUN)
            self.ends[index, op.row] = Ends(arrival[index], leave[index], op, index, over[index])

    def _each_for_itself(
        self,
        members: Mapping[int, CollectiveOp],
        number: int,
        times: tuple[Mapping[int, int], Mapping[int, int]],
        points: tuple[Mapping[int, int], Mapping[int, int]],
    ) -> None:
        begin, end = times
        for index, op in members.items():
            there = [mate for mate in members if begin[mate] <= end[index]]
            moved = self._draft.transfer(
                max(begin[mate] for mate in there), end[index], index, number, shared=False
            )
            for mate in there:
                self._draft.edge(points[0][mate], moved, Edge.ARRIVAL, 0, mate, members[mate].row)
            self._draft.edge(moved, points[1][index], Edge.LEAVE, 0, index, op.row)


def clock_shifts(recordings: Sequence[Recording], pairing: Pairing) -> list[int]:
    """What to add to each recording's times to have them all on the first host's clock, from the first file's base; ns."""
    clocks = {clock.host: clock for clock in fit_clocks(recordings, pairing.paired)}
    base = recordings[0].base_ns
    return [
        recording.base_ns - base - _ahead(clocks.get(recording.header.host or ""), recording)
        for recording in recordings
    ]


def _ahead(clock: Clock | None, recording: Recording) -> int:
    """How far ahead a host's clock is; drift within one recording is left out, it is under a microsecond a step."""
    if clock is None:
        return 0
    return round(clock.offset + clock.drift * (recording.base_ns - clock.origin))
