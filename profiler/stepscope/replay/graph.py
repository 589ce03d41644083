"""One step of all recorded ranks as a graph that can be replayed with something changed (METRICS section 6)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from stepscope.ranks.pairing import Pairing
from stepscope.replay.blocking import BlockedHost
from stepscope.replay.change import NOTHING, Change, apply
from stepscope.replay.draft import Draft
from stepscope.replay.hosts import Threads
from stepscope.replay.joined import Key, Meetings, clock_shifts
from stepscope.replay.network import Circle, Network, Repeated
from stepscope.replay.on_cpu import CpuStep, over_before_its_end
from stepscope.replay.on_device import DeviceStep
from stepscope.replay.recut import knows
from stepscope.replay.timeline import Timeline
from stepscope.trace.recording import Recording

_STEADY = 5
"""After so many changed steps in a row another one takes no other time."""
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
        than the device does.
        """
        if change != NOTHING:
            if not self._last or self._last[0][0] is not change:
                changed = Repeated(self._with(change))
                self._last[:] = [(change, self._pace_of(changed, self._at(changed.solve())))]
            return dict(self._last[0][1])
        if not self._pace:
            measured = self._at(self.network.time.astype(np.float64))
            self._pace.update(self._pace_of(Repeated(self.network), measured))
        return self._pace

    def _pace_of(self, step: Repeated, before: Replayed) -> dict[int, float]:
        """before: the step on a device that is as far behind as it was measured."""
        behind, taken = self._behind(), before.wall
        late = {index: max(0.0, time) for index, time in behind.items()}
        for _ in range(_STEADY):
            left = {index: before.drained[index] - before.wall[index] for index in behind}
            if all(abs(max(0.0, left[index]) - late[index]) < _SAME for index in behind):
                break
            earlier = np.zeros(len(self.shifts))
            for index, time in behind.items():
                earlier[index] = time - left[index]
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
        """What communication cost each rank: the step less the same step with every transfer taking no time; ns."""
        if not self.numbers:
            return dict.fromkeys(self.measured, 0.0)
        return self.saved(Change(transfers=dict.fromkeys(self.numbers, 0.0)))


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
