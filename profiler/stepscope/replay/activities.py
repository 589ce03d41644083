"""The device activities of one step and of what was still running when it began, with the calls that launched them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stepscope.trace import host
from stepscope.trace.columns import Category, Trace
from stepscope.trace.launches import calls_of
from stepscope.trace.recording import NO_TIME
from stepscope.trace.steps import Window

_DEVICE = (Category.KERNEL, Category.MEMCPY, Category.MEMSET)


@dataclass(frozen=True, slots=True)
class Activities:
    """Device activities as columns, sorted by start; times in ns on the recording's clock.

    call: the row of the runtime call that launched it, or NO_ROW. mine: whether the step launched it; the others are
    what earlier steps left behind.
    """

    row: NDArray[np.int64]
    start: NDArray[np.int64]
    end: NDArray[np.int64]
    stream: NDArray[np.int64]
    call: NDArray[np.int64]
    launch: NDArray[np.int64]
    thread: NDArray[np.int64]
    mine: NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.row)

    @classmethod
    def of(cls, trace: Trace) -> Activities:
        """All of a trace, none of them any step's."""
        events = trace.events
        rows = np.flatnonzero(events.among(_DEVICE))
        rows = rows[np.argsort(events.start[rows], kind="stable")]
        call = calls_of(trace, events.correlation[rows])
        return cls(
            row=rows,
            start=events.start[rows],
            end=events.end[rows],
            stream=lane_of(events.device[rows], events.stream[rows]),
            call=call,
            launch=np.where(call != host.NO_ROW, events.start[call], NO_TIME),
            thread=trace.events.thread[call],
            mine=np.zeros(len(rows), dtype=np.bool_),
        )

    def of_step(self, window: Window) -> Activities:
        """Those that the window launched, those launched before that were not over at its start, and the last of every
        stream before it.
        """
        known = self.launch != NO_TIME
        mine = known & (self.launch >= window.start) & (self.launch < window.end)
        before = np.where(known, self.launch < window.start, self.start < window.start)
        keep = mine | (before & (self.end > window.start)) | _last_of_each(self.stream, before)
        columns = ("row", "start", "end", "stream", "call", "launch", "thread")
        return Activities(**{name: getattr(self, name)[keep] for name in columns}, mine=mine[keep])


def _last_of_each(stream: NDArray[np.int64], among: NDArray[np.bool_]) -> NDArray[np.bool_]:
    places = np.flatnonzero(among)
    last = np.zeros(len(stream), dtype=np.bool_)
    _, back = np.unique(stream[places][::-1], return_index=True)
    last[places[len(places) - 1 - back]] = True
    return last


def lane_of(device: NDArray[np.int32], stream: NDArray[np.int64]) -> NDArray[np.int64]:
    """One number for each stream of each device."""
    return stream + (device.astype(np.int64) + 1) * (1 << 20)
