"""One step of all recorded ranks as a graph that can be replayed with something changed (METRICS section 6)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from stepscope.ranks.pairing import Pairing
from stepscope.replay.change import NOTHING, Change, apply
from stepscope.replay.draft import Draft
from stepscope.replay.hosts import Threads, main_thread
from stepscope.replay.joined import Key, Meetings, clock_shifts
from stepscope.replay.network import Network
from stepscope.replay.on_cpu import CpuStep
from stepscope.trace.recording import Recording


@dataclass(frozen=True, slots=True)
class Replayed:
    """What a replay gave; ns. Both by recording index, for the recordings that have the step."""

    wall: dict[int, float]
    ends: dict[Key, float]
    """When each rank's part in each collective ended, on the first host's clock."""


@dataclass(frozen=True, slots=True)
class StepGraph:
    """One step of all recorded ranks.

    measured: by recording, the length of the step's window in ns. impossible: how many expected dependencies the
    measured times contradicted.
    """

    network: Network
    step: int
    measured: dict[int, int]
    borders: dict[int, tuple[int, int]]
    shifts: dict[int, int]
    leaves: dict[Key, int]
    numbers: dict[Key, int]
    impossible: int

    def replay(self, change: Change = NOTHING) -> Replayed:
        """The step as it would have been; with nothing changed, as it was."""
        times = apply(self.network, change, self.numbers, self.shifts).solve()
        walls = {index: float(times[end] - times[start]) for index, (start, end) in self.borders.items()}
        return Replayed(walls, {key: float(times[point]) for key, point in self.leaves.items()})

    def cost(self) -> dict[int, float]:
        """What communication cost each rank: the step less the same step with every transfer taking no time; ns."""
        without = self.replay(Change(transfers=dict.fromkeys(self.numbers, 0.0)))
        return {index: self.measured[index] - wall for index, wall in without.wall.items()}


def build(recordings: Sequence[Recording], pairing: Pairing, step: int) -> StepGraph | None:
    """The graph of one step; None where no recording has both the step and host activity in it."""
    draft = Draft()
    shifts = clock_shifts(recordings, pairing)
    meetings = Meetings(draft, shifts)
    meetings.draw(recordings, pairing, step)
    borders, measured = {}, {}
    for index, recording in enumerate(recordings):
        window = next((w for w in recording.steps.windows if w.number == step), None)
        main = main_thread(recording.trace, (window.start, window.end)) if window else None
        if window is None or main is None:
            continue
        threads = Threads(draft, index, shifts[index])
        borders[index] = (threads.at(main, window.start), threads.at(main, window.end))
        measured[index] = window.end - window.start
        mine = [ends for ends in meetings.ends.values() if ends.owner == index]
        CpuStep(draft, threads, recording, window).draw(index, mine)
        threads.join()
    if not borders:
        return None
    return StepGraph(
        network=draft.network(),
        step=step,
        measured=measured,
        borders=borders,
        shifts=dict(enumerate(shifts)),
        leaves={key: ends.leave for key, ends in meetings.ends.items()},
        numbers=meetings.numbers,
        impossible=draft.impossible,
    )
