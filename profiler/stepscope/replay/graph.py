"""One step of all recorded ranks as a graph that can be replayed with something changed (METRICS section 6)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from stepscope.ranks.pairing import Pairing
from stepscope.replay.blocking import BlockedHost
from stepscope.replay.change import NOTHING, Change, apply
from stepscope.replay.draft import Draft
from stepscope.replay.hosts import Threads
from stepscope.replay.joined import Key, Meetings, clock_shifts
from stepscope.replay.network import Circle, Earlier, Network, Repeated
from stepscope.replay.on_cpu import CpuStep, over_before_its_end
from stepscope.replay.on_device import DeviceStep
from stepscope.replay.recut import knows
from stepscope.replay.timeline import Timeline
from stepscope.trace.recording import Recording

_STEADY = 5
"""After so many changed steps in a row another one takes no other time."""
_LEVEL = 0.01
"""Ranks whose steps end at times that differ from the measured ones by less than this share of the step follow on as measured."""
_SAME = 1.0
"""Two steps in a row that differ by less (ns) are those of a job that goes on like this."""


@dataclass(frozen=True, slots=True)
class Replayed:
    """What a replay gave; ns, by recording index, for the recordings that have the step.

    wall: the step's window on the host. drained: from its start until the device had done all that the step launched;
    on a CPU the same as wall. ends: when each rank's part in each collective ended, on the first host's clock.
    """

    wall: dict[int, float]
    drained: dict[int, float]
    ends: dict[Key, float]


@dataclass(frozen=True, slots=True)
class StepGraph:
    """One step of all recorded ranks.

    measured: by recording, the length of the step's window in ns. borders: its first and last point. drains: the points
    after which the device has done all that the step launched. impossible: how many expected dependencies the measured
    times contradicted.
    """

    network: Network
    step: int
    measured: dict[int, int]
    borders: dict[int, tuple[int, int]]
    drains: dict[int, list[int]]
    shifts: dict[int, int]
    leaves: dict[Key, int]
    numbers: dict[Key, int]
    impossible: int
    _pace: dict[int, float] = field(default_factory=dict, init=False, repr=False, compare=False)
    _last: list[tuple[Change, dict[int, float]]] = field(
        default_factory=list, init=False, repr=False, compare=False
    )
    """The change that was replayed last, and its pace: whoever asks whether it is possible asks for that next."""

    def replay(self, change: Change = NOTHING) -> Replayed:
        """The step as it would have been; with nothing changed, as it was."""
        return self._at(self._with(change).solve())

    def _with(self, change: Change) -> Network:
        return apply(self.network, change, self.numbers, self.shifts)

    def _at(self, times: NDArray[np.float64]) -> Replayed:
        start = {index: times[first] for index, (first, _) in self.borders.items()}
        wall = {index: float(times[last] - start[index]) for index, (_, last) in self.borders.items()}
        drained = {
            index: float(times[points].max() - start[index]) if points else wall[index]
            for index, points in self.drains.items()
        }
        return Replayed(wall, drained, {key: float(times[point]) for key, point in self.leaves.items()})

    def possible(self, change: Change) -> bool:
        """Whether the changed step can be drawn, and nothing in it waits for itself."""
        if not all(knows(self.network, one) for one in change.recut):
            return False
        try:
            self.pace(change)
        except Circle:
            return False
        return True

    def saved(self, change: Change) -> dict[int, float]:
        """How much shorter each rank's step would have been, amid steps that were changed in the same way; ns."""
        now, then = self.pace(), self.pace(change)
        return {index: now[index] - taken for index, taken in then.items()}

    def pace(self, change: Change = NOTHING) -> dict[int, float]:
        """What each rank's step takes amid steps that were all changed in the same way, from one drained device to the next; ns.

        The step is replayed again and again, each time on a device that is as far behind the host as the time before
        left it. A host that something kept from running ahead, and that runs ahead once it is taken away, so gains no more
        than the device does. And each time a rank begins as much sooner than the others as the time before let it end:
        the others wait in one step's first collective for what a rank does after the last one of the step before.
        """
        if change != NOTHING:
            if not self._last or self._last[0][0] is not change:
                changed = Repeated(self._with(change))
                self._last[:] = [(change, self._pace_of(changed, self._at(changed.solve()), level=False))]
            return dict(self._last[0][1])
        if not self._pace:
            measured = self._at(self.network.time.astype(np.float64))
            self._pace.update(self._pace_of(Repeated(self.network), measured, level=True))
        return self._pace

    def _pace_of(self, step: Repeated, before: Replayed, *, level: bool) -> dict[int, float]:
        """before: the step as it follows on what was measured before it. level: all ranks begin as measured, each time."""
        behind, taken = self._behind(), before.wall
        late = {index: max(0.0, time) for index, time in behind.items()}
        sooner = dict.fromkeys(taken, 0.0)
        for _ in range(_STEADY):
            left = {index: before.drained[index] - before.wall[index] for index in behind}
            ended = sooner if level else self._ended_sooner(sooner, before)
            moved = any(abs(ended[index] - sooner[index]) >= _LEVEL * before.wall[index] for index in sooner)
            if not moved and all(abs(max(0.0, left[index]) - late[index]) < _SAME for index in behind):
                break
            sooner = ended if moved else sooner
            earlier = Earlier(*np.zeros((2, len(self.shifts))))
            for index, time in sooner.items():
                earlier.step[index] = time
            for index, time in behind.items():
                earlier.device[index] = time - left[index]
            after = self._at(step.solve(earlier))
            again = {
                index: before.wall[index] + after.drained[index] - before.drained[index]
                for index in after.wall
            }
            steady = all(abs(again[index] - taken[index]) < _SAME for index in taken)
            late = {index: max(0.0, left[index]) for index in behind}
            before, taken = after, again
            if steady:
                break
        return dict(taken)

    def _ended_sooner(self, begun: Mapping[int, float], after: Replayed) -> dict[int, float]:
        """How much sooner than measured each rank ends, of that its begin, next to the rank that gained least; ns."""
        sooner = {index: time + self.measured[index] - after.wall[index] for index, time in begun.items()}
        least = min(sooner.values())
        return {index: time - least for index, time in sooner.items()}

    def _behind(self) -> dict[int, int]:
        """How long after each recording's step began the device was done with the steps before; ns, for those with a device."""
        network = self.network
        late: dict[int, int] = {}
        for point in np.flatnonzero(network.context).tolist():
            index = int(network.point_owner[point])
            if index in self.borders:
                time = int(network.time[point] - network.time[self.borders[index][0]])
                late[index] = max(time, late.get(index, time))
        return late

    def cost(self) -> dict[int, float]:
        """What communication cost each rank: the step less the same step with every transfer taking no time; ns.

        A rank's own: the others begin as they were measured.
        """
        if not self.numbers:
            return dict.fromkeys(self.measured, 0.0)
        free = Repeated(self._with(Change(transfers=dict.fromkeys(self.numbers, 0.0))))
        now, then = self.pace(), self._pace_of(free, self._at(free.solve()), level=True)
        return {index: now[index] - taken for index, taken in then.items()}


def build(
    recordings: Sequence[Recording],
    pairing: Pairing,
    step: int,
    timelines: Sequence[Timeline] | None = None,
) -> StepGraph | None:
    """The graph of one step; None where no recording has both the step and host activity in it.

    timelines: of the recordings, to be handed over where several steps are built.
    """
    timelines = timelines or [Timeline(recording.trace) for recording in recordings]
    draft = Draft()
    shifts = clock_shifts(recordings, pairing)
    meetings = Meetings(draft, shifts, _over(recordings, timelines, step))
    meetings.draw(recordings, pairing, step)
    borders: dict[int, tuple[int, int]] = {}
    measured: dict[int, int] = {}
    drains: dict[int, list[int]] = {}
    for index, (recording, timeline) in enumerate(zip(recordings, timelines, strict=True)):
        window = next((w for w in recording.steps.windows if w.number == step), None)
        main = timeline.main_thread(window) if window else None
        if window is None or main is None:
            continue
        threads = Threads(draft, index, shifts[index])
        borders[index] = (threads.at(main, window.start), threads.at(main, window.end))
        measured[index] = window.end - window.start
        mine = [ends for ends in meetings.ends.values() if ends.owner == index]
        if recording.device == "cpu":
            CpuStep(draft, threads, recording, timeline, window).draw(index, mine)
            drains[index] = []
        else:
            device = DeviceStep(draft, index, shifts[index], timeline.activities.of_step(window))
            waits = timeline.synchronisations.waits
            device.draw(threads, {ends.op.row: ends for ends in mine}, waits, window.start)
            BlockedHost(draft, threads, timeline, window, device).draw(main)
            drains[index] = device.drained
        threads.join()
    if not borders:
        return None
    return StepGraph(
        network=draft.network(),
        step=step,
        measured=measured,
        borders=borders,
        drains=drains,
        shifts=dict(enumerate(shifts)),
        leaves={key: ends.leave for key, ends in meetings.ends.items()},
        numbers=meetings.numbers,
        impossible=draft.impossible,
    )


def _over(recordings: Sequence[Recording], timelines: Sequence[Timeline], step: int) -> dict[Key, int]:
    """The collectives on CPUs that were over before their event ended."""
    return {
        (index, row): time
        for index, (recording, timeline) in enumerate(zip(recordings, timelines, strict=True))
        if recording.device == "cpu"
        for window in recording.steps.windows
        if window.number == step
        for row, time in over_before_its_end(recording, timeline, window).items()
    }
