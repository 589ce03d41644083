"""A GPU step as detectors look at it: device activities with their launches, and what the host was in the middle of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stepscope.audit.case import Case, RankStep
from stepscope.audit.causes.finding import in_step
from stepscope.replay.activities import Activities
from stepscope.replay.graph import StepGraph
from stepscope.replay.joined import Key
from stepscope.replay.timeline import Timeline
from stepscope.trace import host
from stepscope.trace.columns import Category, Trace
from stepscope.trace.recording import CollectiveOp, Phase


@dataclass(frozen=True, slots=True)
class DeviceView:
    """One rank's step. Columns are those of the activities: everything of the step's own, and what it found running.

    compute: the step's own kernels that are no collectives. phase: of each activity's launch. collectives: by place among
    the activities, the step's own.
    """

    one: RankStep
    timeline: Timeline
    activities: Activities
    compute: NDArray[np.bool_]
    phase: NDArray[np.uint8]
    collectives: Mapping[int, CollectiveOp]

    @property
    def trace(self) -> Trace:
        """What was recorded of the rank."""
        return self.one.recording.trace

    @property
    def rank(self) -> int:
        """The rank, or its place among the files where the file does not say."""
        return self.one.index if self.one.rank is None else self.one.rank

    def key(self, place: int) -> Key:
        """An activity as the replay names it."""
        return self.one.index, int(self.activities.row[place])

    def name(self, place: int) -> str:
        """An activity's name."""
        name: str = self.trace.names[self.trace.events.name[self.activities.row[place]]]
        return name

    def backward_compute(self) -> NDArray[np.int64]:
        """Places of the kernels of backward, in the order of their start."""
        return np.flatnonzero(self.compute & (self.phase == Phase.BACKWARD))

    def consumer(self) -> int | None:
        """The first kernel after backward: what reads the reduced gradients, so what waits for them."""
        backward = self.backward_compute()
        if not len(backward):
            return None
        last = self.activities.launch[backward].max()
        later = np.flatnonzero(self.compute & (self.activities.launch > last))
        return int(later[0]) if len(later) else None


def device_views(case: Case, graph: StepGraph) -> list[DeviceView]:
    """The ranks of a graph's step that ran on a GPU."""
    return case.shared(("device views", graph.step), lambda: _views(case, graph))


def _views(case: Case, graph: StepGraph) -> list[DeviceView]:
    on_device = [one for one in in_step(case, graph) if one.recording.device in ("cuda", "rocm")]
    return [_view(one, case.timelines[one.index]) for one in on_device]


def reads_gradients(case: Case, graph: StepGraph) -> dict[Key, Key]:
    """For every gradient collective, the kernel that reads what it reduced, and so waits for it in any case."""
    return {
        view.key(k): view.key(consumer)
        for view in device_views(case, graph)
        if (consumer := view.consumer()) is not None
        for k, op in view.collectives.items()
        if op.gradient
    }


def _view(one: RankStep, timeline: Timeline) -> DeviceView:
    trace, a = timeline.trace, timeline.activities.of_step(one.step.window)
    by_row = {op.row: op for op in one.ops}
    collectives = {k: by_row[row] for k, row in enumerate(a.row.tolist()) if row in by_row and a.mine[k]}
    compute = a.mine & (trace.events.category[a.row] == Category.KERNEL)
    compute[list(collectives)] = False
    return DeviceView(one, timeline, a, compute, _phases(timeline, a), collectives)


def _phases(timeline: Timeline, a: Activities) -> NDArray[np.uint8]:
    """Backward inside a node of the autograd engine, optimizer inside its step, else forward."""
    optimizer = timeline.optimizer.holding(a.thread, a.launch) != host.NO_ROW
    backward = timeline.backward.holding(a.thread, a.launch) != host.NO_ROW
    phase = np.full(len(a), Phase.FORWARD, dtype=np.uint8)
    phase[backward] = Phase.BACKWARD
    phase[optimizer & ~backward] = Phase.OPTIMIZER
    return phase
