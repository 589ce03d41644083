"""When the device was idle because the host had not launched its next kernel (METRICS section 5, `host_starved`)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from stepscope import intervals as iv
from stepscope.audit.overlap import work_union
from stepscope.intervals import Intervals
from stepscope.trace.recording import NO_TIME, Recording


def starved_spans(recording: Recording) -> Intervals:
    """The parts of the gaps between compute in which the next compute had not been launched yet.

    On a CPU the training thread launches and computes, so a gap is the thread busy with something else (Python, the
    autograd engine) or blocked. It counts as blocked up to the last collective that ended in it, since a thread that
    waits goes on when the transfer ends; only the rest is starvation.
    """
    work = recording.compute
    busy = work_union(work)
    if len(busy) < 2:
        return iv.EMPTY
    gap_start, gap_end = busy[:-1, 1], busy[1:, 0]
    if recording.device == "cpu":
        return iv.union(_last_end_within(recording, gap_start, gap_end), gap_end)
    return iv.union(gap_start, np.minimum(_next_launch(recording, gap_end), gap_end))


def _next_launch(recording: Recording, gap_end: NDArray[np.int64]) -> NDArray[np.int64]:
    """For each gap, when the compute that ends it was launched; NO_TIME (no starvation) where that is not known."""
    work = recording.compute
    first = np.searchsorted(work.start, gap_end, side="left")
    launch: NDArray[np.int64] = np.where(work.launch[first] == NO_TIME, NO_TIME, work.launch[first])
    return launch


def _last_end_within(
    recording: Recording, gap_start: NDArray[np.int64], gap_end: NDArray[np.int64]
) -> NDArray[np.int64]:
    """For each gap, the end of the last collective that ended inside it, else the gap's start."""
    ends = np.sort(np.array([op.end for op in recording.collectives], dtype=np.int64))
    if not len(ends):
        return gap_start
    index = np.searchsorted(ends, gap_end, side="right") - 1
    return np.where(index >= 0, np.maximum(ends[np.maximum(index, 0)], gap_start), gap_start)
