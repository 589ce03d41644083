"""Where the host waited for the device: the operators that read a value back, and where in the step they sit.

A call that synchronises, or a copy that returns only when it is done, is a wait. What reads is the outermost tensor operator
around it (`aten::item`, `aten::nonzero`, `aten::to`); without one it is the script's own synchronise. An `aten::item` of a
tensor on the CPU waits for nothing, and is not here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from stepscope.audit.case import Case
from stepscope.audit.causes.device import DeviceView, device_views
from stepscope.replay.change import Change, Segment
from stepscope.replay.graph import StepGraph
from stepscope.replay.joined import Key
from stepscope.trace import host
from stepscope.trace.columns import Category, Trace
from stepscope.trace.recording import Phase

SYNCHRONISES = re.compile(
    r"(cuda|hip)(Stream|Device|Event|Ctx)Synchronize.*|cu(Stream|Event|Ctx)Synchronize.*"
)
_WHOLE_DEVICE = re.compile(r"(cuda|hip)DeviceSynchronize.*|cuCtxSynchronize.*")
_READS_ONLY = frozenset(
    {
        "aten::item",
        "aten::_local_scalar_dense",
        "aten::is_nonzero",
        "aten::to",
        "aten::_to_copy",
        "aten::copy_",
        "aten::cpu",
    }
)
"""Operators that do nothing but read: without the read they would not be there. Others compute too, and stay."""

BEFORE, FORWARD, BETWEEN, BACKWARD, CLIP, OPTIMIZER, AFTER = (
    "before forward",
    "forward",
    "between forward and backward",
    "backward",
    "between backward and the optimizer",
    "the optimizer's step",
    "after the optimizer",
)


@dataclass(slots=True)
class Read:
    """One wait of the host; ns on the recording's clock.

    operator: the name and the row of the outermost tensor operator around it, or the call itself. calls: rows of the
    calls that waited. copies: places of the copies that it made. around: names of all spans that it is in.
    """

    view: DeviceView
    thread: int
    operator: str
    row: int
    place: str
    around: tuple[str, ...]
    calls: list[int] = field(default_factory=list)
    copies: list[int] = field(default_factory=list)

    @property
    def blocked(self) -> int:
        """How long the host was in the calls that waited; ns."""
        return int(self.view.trace.events.duration[self.calls].sum())

    @property
    def start(self) -> int:
        """When it began."""
        return int(self.view.trace.events.start[self.row])

    @property
    def caller(self) -> str | None:
        """The script's function that it was called from, as `train.py(42): step`, where stacks were recorded."""
        trace, end = self.view.trace, int(self.view.trace.events.end[self.row])
        name = trace.frames.innermost(self.thread, self.start, end)
        return None if name is None else trace.names[name]

    def copies_from(self, way: str) -> list[int]:
        """Its copies whose name says this way, as "HtoD"."""
        return [k for k in self.copies if way in self.view.name(k)]


def all_reads(case: Case, graph: StepGraph) -> list[Read]:
    """Every wait of the host in a step, by rank and in the order of the file."""
    return case.shared(
        ("reads", graph.step), lambda: [read for view in device_views(case, graph) for read in _reads(view)]
    )


def _reads(view: DeviceView) -> list[Read]:
    trace, events = view.trace, view.trace.events
    threads = trace.events.thread
    place = _Places(view)
    found: dict[int, Read] = {}
    for call, copy in _waits(view):
        thread = int(threads[call])
        around = place.spans_around(thread, int(events.start[call]), int(events.end[call]))
        names = [trace.names[events.name[row]] for row in around]
        tensor = next((k for k, name in enumerate(names) if name.startswith("aten::")), None)
        row = call if tensor is None else around[tensor]
        if row not in found:
            name = trace.names[events.name[row]]
            where = place.of(thread, int(events.start[row]), names)
            found[row] = Read(view, thread, name, row, where, tuple(names))
        found[row].calls.append(call)
        found[row].copies += [copy] if copy is not None else []
    profilers_own = _profilers_own(trace)
    return [read for read in found.values() if read.row != profilers_own]


def without(many: Iterable[Read], after: Mapping[Key, Key]) -> Change | None:
    """The step without some reads: nobody waits, and what only reads is not done at all. after: as a Change has it."""
    calls: set[Key] = set()
    copies: dict[Key, float] = {}
    segments: list[Segment] = []
    for read in many:
        index, events = read.view.one.index, read.view.trace.events
        calls.update((index, call) for call in read.calls)
        if read.operator in _READS_ONLY and not read.copies_from("HtoD"):
            copies.update((read.view.key(k), 0.0) for k in read.copies_from("DtoH"))
            segments.append(
                Segment(index, read.thread, int(events.start[read.row]), int(events.end[read.row]))
            )
    if not calls:
        return None
    return Change(unblocked=frozenset(calls), activities=copies, segments=tuple(segments), after=after)


def _waits(view: DeviceView) -> list[tuple[int, int | None]]:
    """The calls that waited, each with the copy that it made or that it waited for."""
    a, events = view.activities, view.trace.events
    calls = view.timeline.calls(view.one.step.window, SYNCHRONISES)
    waits: dict[int, int | None] = dict.fromkeys(calls.tolist())
    copies = np.flatnonzero(a.mine & (events.category[a.row] == Category.MEMCPY))
    for k in copies.tolist():
        if a.end[k] <= events.end[a.call[k]]:
            waits[int(a.call[k])] = k
    for call in [call for call, copy in waits.items() if copy is None]:
        waits[call] = _just_copied(view, copies, call)
    return sorted(waits.items())


def _just_copied(view: DeviceView, copies: NDArray[np.int64], call: int) -> int | None:
    """The copy that a call's thread launched last, if it launched nothing after it."""
    a, trace = view.activities, view.trace
    mine = np.flatnonzero(
        a.mine & (a.thread == trace.events.thread[call]) & (a.launch < trace.events.start[call])
    )
    last = int(mine[np.argmax(a.launch[mine])]) if len(mine) else -1
    return last if last in copies else None


def _profilers_own(trace: Trace) -> int | None:
    """The one synchronise of the whole device in a file: the profiler's, when it stops."""
    names = trace.names
    whole = [k for k, name in enumerate(names) if _WHOLE_DEVICE.match(name)]
    events = trace.events
    rows = np.flatnonzero((events.category == Category.RUNTIME) & np.isin(events.name, whole))
    return int(rows[0]) if len(rows) == 1 else None


class _Places:
    """Where in a step something sits on the host."""

    def __init__(self, view: DeviceView) -> None:
        trace, events, window = view.trace, view.trace.events, view.one.step.window
        self._trace = trace
        rows = view.timeline.on_host.reaching_into(window)
        self._rows = np.sort(rows[events.category[rows] != Category.RUNTIME])
        self._threads = trace.events.thread[self._rows]
        self._start, self._end = events.start[self._rows], events.end[self._rows]
        names = events.name[self._rows]
        evaluates = np.array([host.is_evaluate_function(name) for name in trace.names], dtype=np.bool_)
        optimizers = np.array([host.is_optimizer_step(name) for name in trace.names], dtype=np.bool_)
        self._backward = self._start[evaluates[names]] if len(names) else self._start
        self._optimizer = self._start[optimizers[names]] if len(names) else self._start
        forward = view.activities.launch[view.compute & (view.phase == Phase.FORWARD)]
        self._forward = np.sort(forward)

    def spans_around(self, thread: int, start: int, end: int) -> list[int]:
        """Rows of a thread's operators and annotations that hold [start, end), the outermost first."""
        held = np.flatnonzero((self._threads == thread) & (self._start <= start) & (self._end >= end))
        order = np.lexsort((-self._end[held], self._start[held]))
        found: list[int] = self._rows[held[order]].tolist()
        return found

    def of(self, thread: int, time: int, around: Sequence[str]) -> str:
        """The part of the step that a time on a thread belongs to."""
        if any(map(host.is_optimizer_step, around)):
            return OPTIMIZER
        if any(map(host.is_evaluate_function, around)):
            return BACKWARD
        if not len(self._forward) or time < self._forward[0]:
            return BEFORE
        if not (self._backward > time).any():
            return CLIP if (self._optimizer > time).any() and len(self._backward) else AFTER
        following = self._backward[self._backward > time].min()
        computes = (self._forward > time) & (self._forward < following)
        return FORWARD if computes.any() else BETWEEN
