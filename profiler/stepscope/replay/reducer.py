"""DDP's reducer on the training thread: where it needs each bucket, as its copies out of the buckets show."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from stepscope.replay.timeline import Timeline
from stepscope.trace import gloo, host
from stepscope.trace.columns import Trace
from stepscope.trace.recording import CollectiveOp, Phase, Recording
from stepscope.trace.steps import Window

_COPY_OUT = "torch.distributed.ddp.reducer::copy_bucket_to_grad"


def buckets_of(recording: Recording, window: Window) -> list[list[CollectiveOp]]:
    """The step's buckets in launch order; those of several backwards kept apart by the forward between them."""
    forward = recording.compute.start[recording.compute.phase == Phase.FORWARD]
    found: dict[int, list[CollectiveOp]] = {}
    for op in sorted(recording.collectives, key=lambda op: op.launch):
        if (
            op.step == window.number
            and op.gradient
            and op.kind == "all_reduce"
            and op.phase == Phase.BACKWARD
        ):
            found.setdefault(int(np.searchsorted(forward, op.launch)), []).append(op)
    return list(found.values())


def needed_at(
    recording: Recording, timeline: Timeline, window: Window, thread: int, buckets: Sequence[CollectiveOp]
) -> list[int | None]:
    """For each bucket of one backward, when the thread first needed it; None where that can't be told.

    Gradients that are not copied out need all buckets at once: at the first event after backward.
    """
    over = _backward_over(recording, timeline, window, thread, buckets)
    if over is None:
        return [None] * len(buckets)
    copied = copied_at(recording, timeline, window, thread, buckets)
    return copied or [_next_event(timeline, window, thread, over)] * len(buckets)


def copied_at(
    recording: Recording, timeline: Timeline, window: Window, thread: int, buckets: Sequence[CollectiveOp]
) -> list[int | None]:
    """For each bucket of one backward, when its first gradient was copied out; empty where none is copied.

    No copy begins before its bucket's all-reduce is over, whatever the worker's own event says of its end.
    """
    over, trace = _backward_over(recording, timeline, window, thread, buckets), timeline.trace
    copies = host.select(trace, lambda name: name == _COPY_OUT)
    start = trace.events.start[copies]
    if over is None:
        return []
    mine = (timeline.threads[copies] == thread) & (start >= over) & (start < window.end)
    copies = copies[mine][np.argsort(start[mine], kind="stable")]
    sizes = [gloo.total_elements(trace.shapes.get(int(row))) for row in copies]
    return (
        _first_copies(trace, copies.tolist(), sizes, [op.elements for op in buckets]) if len(copies) else []
    )


def _backward_over(
    recording: Recording, timeline: Timeline, window: Window, thread: int, buckets: Sequence[CollectiveOp]
) -> int | None:
    """When the last node of the backward that launched these buckets ended."""
    work, launched = recording.compute, buckets[-1].launch
    others = work.start[(work.phase != Phase.BACKWARD) & (work.start > launched)]
    until = int(others[0]) if len(others) else window.end
    nodes = timeline.evaluates
    ends = timeline.trace.events.end[nodes[timeline.threads[nodes] == thread]]
    ends = ends[(ends > launched) & (ends <= until)]
    return int(ends.max()) if len(ends) else None


def _next_event(timeline: Timeline, window: Window, thread: int, time: int) -> int | None:
    events, rows = timeline.trace.events, timeline.of_thread(thread, window)
    times = np.concatenate((events.start[rows], events.end[rows], [window.end]))
    later = times[times > time]
    return int(later.min()) if len(later) else None


def _first_copies(
    trace: Trace, copies: Sequence[int], sizes: Sequence[int | None], buckets: Sequence[int | None]
) -> list[int | None]:
    """When the first gradient of each bucket was copied out, by counting elements; buckets are copied in launch order."""
    starts: list[int | None] = []
    copied, wanted, bucket = 0, 0, 0
    for row, size in zip(copies, sizes, strict=True):
        if bucket < len(buckets) and copied == wanted:
            starts.append(int(trace.events.start[row]))
            if buckets[bucket] is None or size is None:
                break
            wanted += buckets[bucket] or 0
            bucket += 1
        copied += size or 0
    return starts + [None] * (len(buckets) - len(starts))
