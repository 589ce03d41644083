"""HolisticTraceAnalysis: its definitions, computed from our own data.

As of HTA 0.5.0 (hta/analyzers/communication_analysis.py, breakdown_analysis.py; hta/utils/utils.py; hta/common/trace.py
and trace_parser.py): activities are the rows with a stream; a kernel whose name begins `nccl...Kernel` communicates, one
that is no copy and has no "Sync" in its name computes; whatever the last ProfilerStep launched is left out where there are
two or more; times are rounded inwards to whole microseconds. The overlap is communication beside any compute, in percent
with two decimals.
"""

from __future__ import annotations

import re

import numpy as np
from numpy.typing import NDArray

from stepscope import intervals as iv
from stepscope.second_opinion.facts import Counted, FileFacts
from stepscope.second_opinion.figures import Answer, figure
from stepscope.second_opinion.result import Figure, Rung
from stepscope.trace.collectives import function_name
from stepscope.trace.columns import Category, Trace

NAME = "HolisticTraceAnalysis"

_COMMUNICATES = re.compile(r"^nccl.*Kernel")
_COMPUTES_NOT = re.compile(r"(^nccl.*Kernel)|(.*Memcpy)|(^Memset)|(.*Sync)")
_STEP = "ProfilerStep"
_DEVICE = (Category.KERNEL, Category.MEMCPY, Category.MEMSET, Category.CUDA_SYNC)

OVERLAP_TOLERANCE = 0.00006
"""It rounds to 0.01 %."""
COMPUTE_TOLERANCE = 0.001
"""ms: it counts in whole microseconds."""


def figures(facts: FileFacts, answer: Answer) -> list[Figure]:
    """Its overlap and its compute time, from our definition to its own; none where it gave neither."""
    last = _last_step(facts)
    as_dropped = _counted(facts, last, rounded=False)
    by_us = _counted(facts, last, rounded=True)
    whole = facts.everything()
    dropped = (
        "without what the last step launched" if last is not None else "no step is left out: there is one"
    )
    by_our_names = _by_our_names(facts, last)
    overlap = [
        *facts.overlap_rungs(),
        Rung(definition=dropped, value=by_our_names.overlap),
        Rung(definition="told by HTA's kernel names", value=as_dropped.overlap),
        Rung(definition="HTA: times rounded inwards to whole us", value=by_us.overlap),
    ]
    compute = [
        Rung(definition="stepscope: all compute of the file", value=whole.compute_ms),
        Rung(definition=dropped, value=by_our_names.compute_ms),
        Rung(definition="told by HTA's kernel names", value=as_dropped.compute_ms),
        Rung(definition="HTA: times rounded inwards to whole us", value=by_us.compute_ms),
    ]
    return [
        figure("overlap", "share", overlap, answer.get("overlap"), OVERLAP_TOLERANCE),
        figure("compute", "ms", compute, answer.get("compute_ms"), COMPUTE_TOLERANCE),
    ]


def remarks(facts: FileFacts) -> list[str]:
    """Kernels that it takes for something else than we do."""
    found = []
    missed = [op.name for op in facts.recording.collectives if not _COMMUNICATES.match(op.name)]
    if missed:
        found.append(
            f"{len(missed)} collectives are none by its names, `{function_name(missed[0])}` among them"
        )
    trace = facts.recording.trace
    kernels = trace.events.name[trace.events.category == Category.KERNEL]
    left_out = [name for name in np.unique(kernels) if _left_out(trace.names[name])]
    if left_out:
        count = int(np.isin(kernels, left_out).sum())
        name = function_name(trace.names[left_out[0]])
        found.append(
            f'{count} kernels are no compute for it, since their names have "Sync" or "Memcpy": `{name}`'
        )
    return found


def why_no_figure(facts: FileFacts) -> str | None:
    """The reason why it has no overlap, where our data tells it."""
    if facts.recording.device == "cpu":
        return "it reads kernels of a device, and a CPU run has none"
    if not len(_counted(facts, _last_step(facts), rounded=False).comm):
        return "none of the device kernels it reads communicates by its names"
    return None


def _left_out(kernel: str) -> bool:
    return bool(_COMPUTES_NOT.match(kernel)) and not _COMMUNICATES.match(kernel)


def _last_step(facts: FileFacts) -> int | None:
    """Our time at which its last step begins, host or device whichever is later; None where it leaves none out."""
    rows = [row for row in facts.rows if _STEP in row.name]
    if len({row.name for row in rows}) < 2 or facts.recording.steps.found_by == "file":
        return None
    on_host = max((row.ts or 0.0 for row in rows if row.cat != "gpu_user_annotation"), default=None)
    latest = max(row.ts or 0.0 for row in rows)
    if on_host is None:
        return None
    return facts.recording.steps.windows[-1].start + round((latest - on_host) * 1000)


def _launched_before(trace: Trace, limit: int | None) -> NDArray[np.int64]:
    """Device rows with a stream that a host call before the limit launched; all of them without one."""
    events = trace.events
    rows = np.flatnonzero(events.among(_DEVICE) & (events.stream >= 0))
    if limit is None:
        return rows
    calls = (events.category == Category.RUNTIME) & (events.start < limit)
    return rows[np.isin(events.correlation[rows], events.correlation[calls])]


def _counted(facts: FileFacts, limit: int | None, *, rounded: bool) -> Counted:
    trace = facts.recording.trace
    rows = _launched_before(trace, limit)
    comm = np.array([_COMMUNICATES.match(name) is not None for name in trace.names], dtype=np.bool_)
    compute = np.array([not _COMPUTES_NOT.match(name) for name in trace.names], dtype=np.bool_)
    start, end = trace.events.start[rows], trace.events.end[rows]
    if rounded:
        since = facts.recording.base_ns - (facts.raw.base_ns or 0)
        start, end = _rounded_inwards(start, trace.events.duration[rows], since)
    named = trace.events.name[rows]
    return Counted(
        iv.union(start[comm[named]], end[comm[named]]), iv.union(start[compute[named]], end[compute[named]])
    )


def _rounded_inwards(
    start: NDArray[np.int64], duration: NDArray[np.int64], since: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Starts rounded up and ends rounded down to whole microseconds, in ns, as floats come out.

    since: ns from what the file's times count from to our zero. Where that is the epoch, a float of microseconds holds
    them to a quarter of one only, and many a time is rounded to a whole one before it is rounded inwards.
    """
    in_file = start + since
    as_float = in_file // 1000 + in_file % 1000 / 1000
    ends = np.floor(as_float + duration / 1000)
    return np.ceil(as_float).astype(np.int64) * 1000, ends.astype(np.int64) * 1000


def _by_our_names(facts: FileFacts, limit: int | None) -> Counted:
    """Our own classes, less what the last step launched."""
    whole = facts.everything()
    if limit is None:
        return whole
    recording = facts.recording
    kept = recording.compute.where(recording.compute.launch < limit)
    ops = [op for op in recording.collectives if op.launch < limit]
    start = np.array([op.start for op in ops], dtype=np.int64)
    end = np.array([op.end for op in ops], dtype=np.int64)
    return Counted(iv.union(start, end), iv.union(kept.start, kept.end))
