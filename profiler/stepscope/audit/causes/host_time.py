"""What a rank's host threads spent on their own work, phase by phase: waiting for others is left out."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from stepscope.audit.case import RankStep
from stepscope.audit.causes.rounds import within
from stepscope.replay.change import edges_of_thread
from stepscope.replay.graph import StepGraph
from stepscope.replay.timeline import Timeline
from stepscope.trace import host
from stepscope.trace.recording import Phase
from stepscope.trace.steps import Window

INPUT, FORWARD, BACKWARD, UPDATE = "input", "forward", "backward", "update"
_SHORTEST = 50_000
_EVALUATE = "autograd::engine::evaluate_function: "
_MACHINERY = re.compile(
    r"(after|within) (torch::|torch\.distributed\.|ProfilerStep#|Optimizer\.|DistributedDataParallel\.|"
    + _EVALUATE
    + "torch::)"
)
"""What torch records of its own doings says nothing to a user, where the part of the step is told."""
_OWN = 0.5
"""A stretch of which less than this is a thread's own time is a wait."""


@dataclass(frozen=True, slots=True)
class Span:
    """A part of a step on the host; ns on the recording's clock."""

    phase: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Stretch:
    """A stretch of a thread in which no operator computed; ns on the recording's clock."""

    thread: int
    start: int
    end: int

    @property
    def length(self) -> int:
        """In ns."""
        return self.end - self.start


def spans(one: RankStep, timeline: Timeline) -> list[Span]:
    """A step from end to end: what comes before a forward is input, what comes after the last backward is the update.

    timeline: of the rank's trace. Where the autograd engine has a thread of its own, backward begins when it was called.
    """
    forwards, backwards = _forward_starts(one), _backward_spans(one, timeline)
    borders = [(one.step.window.start, INPUT)]
    for start, end in backwards:
        forward = [time for time in forwards if borders[-1][0] <= time < start]
        borders += [(forward[0], FORWARD)] if forward else []
        borders += [(start, BACKWARD), (end, INPUT)]
    if backwards:
        borders[-1] = (borders[-1][0], UPDATE)
    ends = [*(time for time, _ in borders[1:]), one.step.window.end]
    return [Span(phase, start, end) for (start, phase), end in zip(borders, ends, strict=True) if end > start]


def own_time(graph: StepGraph, one: RankStep, thread: int, start: int, end: int) -> float:
    """How long a host thread worked between two times, as the replay's program order has it; ns."""
    network, shift = graph.network, graph.shifts[one.index]
    edges = edges_of_thread(network, one.index, thread)
    before, after = network.time[network.source[edges]], network.time[network.target[edges]]
    shared = np.minimum(after, end + shift) - np.maximum(before, start + shift)
    share = np.clip(shared, 0, None) / np.maximum(1, after - before)
    return float((network.lag[edges] * share).sum())


def longest_idle(graph: StepGraph, one: RankStep, span: Span, timeline: Timeline) -> Stretch | None:
    """The longest stretch of a span in which one of the step's threads ran no operator and waited for nothing."""
    window = Window(one.number, span.start, span.end)
    found = [
        Stretch(thread, start, end)
        for thread in threads_of(one, timeline)
        for start, end in timeline.stretches(thread, window, _SHORTEST)
    ]
    longest_first = sorted(found, key=lambda stretch: stretch.length, reverse=True)
    return next(
        (s for s in longest_first if own_time(graph, one, s.thread, s.start, s.end) >= _OWN * s.length), None
    )


def threads_of(one: RankStep, timeline: Timeline) -> list[int]:
    """The thread whose step it is, and those on which the autograd engine runs its backward."""
    nodes = timeline.evaluates[within(one.step.window, timeline.events.start[timeline.evaluates])]
    engine = np.unique(timeline.threads[nodes]).tolist()
    main = timeline.main_thread(one.step.window)
    return [thread for thread in dict.fromkeys([main, *engine]) if thread is not None]


def around(one: RankStep, stretch: Stretch, phase: str) -> str:
    """Where a stretch of a phase lies, in a user's words: part of the step, operator before it, function around it."""
    trace, events = one.recording.trace, one.recording.trace.events
    mine = trace.events.thread == stretch.thread
    holding = np.flatnonzero(mine & (events.start <= stretch.start) & (events.end >= stretch.end))
    ended = np.flatnonzero(
        mine & (events.end <= stretch.start) & (events.end > stretch.start - stretch.length)
    )
    words = [_part(one, stretch, phase)]
    if len(ended):
        words.append(f"after {_name(one, ended[np.argmax(events.end[ended])])}")
    if len(holding):
        words.append(f"within {_name(one, holding[np.argmax(events.start[holding])])}")
    return ", ".join(word for word in words if not _MACHINERY.search(word)).replace(_EVALUATE, "")


def _part(one: RankStep, stretch: Stretch, phase: str) -> str:
    if phase != UPDATE:
        return "before forward" if phase == INPUT else f"in {phase}"
    events = one.recording.trace.events
    rows = host.select(one.recording.trace, host.is_optimizer_step)
    rows = rows[within(one.step.window, events.start[rows])]
    if not len(rows):
        return "after backward"
    if stretch.end <= events.start[rows].min():
        return "after backward, before the optimizer's step"
    return (
        "after the optimizer's step" if stretch.start >= events.end[rows].max() else "in the optimizer's step"
    )


def _name(one: RankStep, row: np.int64) -> str:
    trace = one.recording.trace
    return str(trace.names[trace.events.name[row]])


def _forward_starts(one: RankStep) -> list[int]:
    """When DDP's forwards began; without DDP, when forward computed first."""
    trace = one.recording.trace
    start = trace.events.start[host.select(trace, host.is_ddp_forward)]
    window = one.step.window
    found = sorted(start[(start >= window.start) & (start < window.end)].tolist())
    if found:
        return found
    work = one.recording.compute
    mine = (work.step == one.number) & (work.phase == Phase.FORWARD)
    return sorted(work.launch[mine].tolist())


def _backward_spans(one: RankStep, timeline: Timeline) -> list[tuple[int, int]]:
    """From the call to the last end of the engine's nodes on the host, one pair a backward pass."""
    rows, events = timeline.evaluates, timeline.events
    rows = rows[within(one.step.window, events.start[rows])]
    start, end = events.start[rows], events.end[rows]
    forwards = np.array(_forward_starts(one), dtype=np.int64)
    number = np.searchsorted(forwards, start)
    firsts = [(int(start[number == n].min()), int(end[number == n].max())) for n in np.unique(number)]
    return [(_called(one, timeline, first), last) for first, last in firsts]


def _called(one: RankStep, timeline: Timeline, first: int) -> int:
    """When the main thread went to sleep for a backward whose first node began at a time; that time where it runs it itself."""
    main = timeline.main_thread(one.step.window)
    if main is None:
        return first
    asleep = timeline.stretches(main, one.step.window, 1)
    held = np.flatnonzero((asleep.start <= first) & (first < asleep.end))
    return int(asleep.start[held[0]]) if len(held) else first
