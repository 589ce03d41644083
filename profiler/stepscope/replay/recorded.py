"""Synchronisation as the profiler recorded it: which stream or call waited for which stream or event.

Kineto writes `cuda_sync` rows only if asked to (`enable_cuda_sync_events`, which `stepscope run` sets). Who waits for an
event waits for what had been launched on its stream when it was recorded there (CUDA Runtime API, cudaStreamWaitEvent). The
rows link to their runtime calls by correlation id; their names are those of Kineto's CuptiActivity.cpp.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stepscope.replay.activities import Activities, lane_of
from stepscope.trace.columns import Category, Trace
from stepscope.trace.host import NO_ROW
from stepscope.trace.launches import calls_of

_STREAM_WAIT, _EVENT_SYNC, _STREAM_SYNC = "Stream Wait Event", "Event Sync", "Stream Sync"
_WHOLE_DEVICE = ("Context Sync", "Device Sync")
ANY_STREAM = -1
"""In the place of a stream: all of them."""


@dataclass(frozen=True, slots=True)
class Awaited:
    """What was launched on a stream, or on any, before a time in ns."""

    stream: int
    before: int

    def among(self, activities: Activities) -> NDArray[np.int64]:
        """Places of the activities that are meant, by start."""
        meant = activities.launch < self.before
        if self.stream != ANY_STREAM:
            meant &= activities.stream == self.stream
        return np.flatnonzero(meant)


@dataclass(frozen=True, slots=True)
class StreamWaits:
    """Waits between streams, in columns: what `stream` is given from `since` on waits for what `source` was before `before`."""

    stream: NDArray[np.int64]
    since: NDArray[np.int64]
    source: NDArray[np.int64]
    before: NDArray[np.int64]

    @classmethod
    def of(cls, rows: Sequence[tuple[int, int, int, int]]) -> StreamWaits:
        """From a row for each wait."""
        return cls(*np.array(rows, dtype=np.int64).reshape(-1, 4).T)


@dataclass(frozen=True, slots=True)
class Synchronisations:
    """All that a trace says of who waited for what.

    calls: row of a blocking runtime call to what it waited for. recorded: whether the profiler was asked for all this.
    """

    recorded: bool
    waits: StreamWaits
    calls: Mapping[int, Awaited]

    @classmethod
    def of(cls, trace: Trace) -> Synchronisations:
        """Rows whose event was recorded before the trace began, or whose call is not in it, say nothing."""
        events = trace.events
        rows = np.flatnonzero(events.category == Category.CUDA_SYNC)
        lanes = lane_of(events.device[rows], events.stream[rows]).tolist()
        calls = calls_of(trace, events.correlation[rows]).tolist()
        marked = _event_records(trace)
        waits: list[tuple[int, int, int, int]] = []
        blocking: dict[int, Awaited] = {}
        for row, lane, call in zip(rows.tolist(), lanes, calls, strict=True):
            if call == NO_ROW:
                continue
            kind, called, event = trace.names[events.name[row]], int(events.start[call]), marked.get(row)
            if kind == _STREAM_WAIT and event is not None:
                waits.append((lane, called, event.stream, event.before))
            elif kind == _EVENT_SYNC and event is not None:
                blocking[call] = event
            elif kind in (_STREAM_SYNC, *_WHOLE_DEVICE):
                blocking[call] = Awaited(lane if kind == _STREAM_SYNC else ANY_STREAM, called)
        return cls(len(rows) > 0, StreamWaits.of(waits), blocking)


def _event_records(trace: Trace) -> dict[int, Awaited]:
    """For each row that waits for an event recorded in the trace, what the event stands for."""
    events, waited = trace.events, trace.waited_events
    rows = np.array(list(waited), dtype=np.int64)
    streams = np.array([event.stream for event in waited.values()], dtype=np.int64)
    calls = calls_of(trace, np.array([event.correlation for event in waited.values()], dtype=np.int64))
    lanes = lane_of(events.device[rows], streams)
    found = zip(rows.tolist(), lanes.tolist(), calls.tolist(), strict=True)
    return {row: Awaited(lane, int(events.start[call])) for row, lane, call in found if call != NO_ROW}
