"""Backward's compute waits for a gradient collective before backward is over."""

from __future__ import annotations

import re
from bisect import bisect_right

import numpy as np

from stepscope.audit.case import Case
from stepscope.audit.causes.device import DeviceView, device_views, reads_gradients
from stepscope.audit.causes.finding import Description, milliseconds, priced
from stepscope.audit.result import Finding
from stepscope.replay.change import Change
from stepscope.replay.graph import StepGraph
from stepscope.stats import median
from stepscope.trace import host
from stepscope.trace.steps import Window

_WAITS = re.compile(r"(cuda|hip)StreamWaitEvent.*|cuStreamWaitEvent.*")
_AT_ONCE = 20_000
"""What waits for another stream starts within so many ns of the end that it waits for."""
_IDLE = 3_000
"""So long, in ns, must the compute stream have been idle before, to have waited at all."""


def detect(case: Case) -> list[Finding]:
    """Kernels of backward that started when a gradient collective ended, after a wait between the two launches."""
    found = {
        number: [(view, waiting) for view in device_views(case, graph) if (waiting := _waiting(view))]
        for number, graph in case.graphs.items()
    }
    everything = [one for many in found.values() for one in many]
    if not everything:
        return []

    def changed(graph: StepGraph) -> Change | None:
        keys = frozenset(view.key(k) for view, waiting in found[graph.step] for k in waiting)
        return Change(unheld=keys, after=reads_gradients(case, graph)) if keys else None

    description = Description(
        cause="wait-edge-in-backward",
        confidence="high: a cudaStreamWaitEvent lies between the launch of each collective and of the kernel that waits",
        evidence=[_sentence(everything)],
        fix="wait for gradient collectives once, after backward: no work.wait() in a hook, no wait_stream() between buckets; "
        "DeepSpeed ZeRO-1/2: overlap_comm=true and a version that does not wait for every bucket",
        reference="deepspeedai/DeepSpeed issue 8364 (average_tensor waits for the reduction stream at every bucket)",
        ranks=sorted({view.rank for view, _ in everything}),
    )
    return priced(case, case.price(changed), description)


def _waiting(view: DeviceView) -> dict[int, int]:
    """Places of backward's kernels that waited, each with the collective that it waited for."""
    a = view.activities
    ends = sorted((int(a.end[k]), k) for k in view.collectives)
    times = [end for end, _ in ends]
    found: dict[int, int] = {}
    busy_until: dict[int, int] = {}
    places = view.backward_compute()
    columns = (column[places].tolist() for column in (a.stream, a.launch, a.start, a.end))
    for k, stream, launch, start, end in zip(places.tolist(), *columns, strict=True):
        free = max(busy_until.get(stream, launch), launch)
        last = bisect_right(times, start) - 1
        if last >= 0 and times[last] > max(free + _IDLE, start - _AT_ONCE):
            collective = ends[last][1]
            if view.collectives[collective].gradient and _waits_between(view, collective, k):
                found[k] = collective
        busy_until[stream] = max(end, busy_until.get(stream, 0))
    return found


def _waits_between(view: DeviceView, collective: int, kernel: int) -> bool:
    """Whether the kernel's thread made a stream wait after launching the collective, outside communication's own calls."""
    a, events = view.activities, view.trace.events
    thread = int(a.thread[kernel])
    between = Window(view.one.number, int(a.launch[collective]) + 1, int(a.launch[kernel]))
    rows = view.timeline.calls(between, _WAITS)
    rows = rows[events.thread[rows] == thread]
    held = view.timeline.communicating.holding(np.full(len(rows), thread), events.start[rows])
    return bool((held == host.NO_ROW).any())


def _sentence(found: list[tuple[DeviceView, dict[int, int]]]) -> str:
    view, waiting = found[0]
    a = view.activities
    kernel, collective = next(iter(waiting.items()))
    lost = median([sum(_lost(view, k) for k in waiting) for view, waiting in found])
    return (
        f"{median([len(waiting) for _, waiting in found]):.3g} kernels of backward a step waited for a gradient collective, "
        f"{milliseconds(lost)} in all; first in step {view.one.number} on rank {view.rank}: the "
        f"{view.collectives[collective].kind} that ended at {milliseconds(int(a.end[collective]))} and the kernel that started "
        f"at {milliseconds(int(a.start[kernel]))}"
    )


def _lost(view: DeviceView, kernel: int) -> int:
    """How long a kernel's stream was idle before it, once it had been launched."""
    a = view.activities
    before = np.flatnonzero((a.stream == a.stream[kernel]) & (a.end <= a.start[kernel]))
    free = int(a.end[before].max()) if len(before) else int(a.launch[kernel])
    return int(a.start[kernel]) - max(free, int(a.launch[kernel]))
