"""The device waits for the host: most kernels find an idle device when they are launched."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from stepscope import intervals as iv
from stepscope.audit.case import Case
from stepscope.audit.causes.device import DeviceView, device_views, reads_gradients
from stepscope.audit.causes.finding import Description, priced
from stepscope.audit.result import Finding
from stepscope.replay.change import Change, Segment
from stepscope.replay.graph import StepGraph
from stepscope.stats import median
from stepscope.trace import host
from stepscope.trace.columns import Category

_MOST = 0.5
"""A host that launches too slowly starves at least this share of the kernels; one that was held up once, only few."""
_ENOUGH = 10
"""Of fewer kernels "most" says nothing: the first one of a step always finds the device idle."""
_INPUT = re.compile(r"enumerate\(DataLoader\)#.*")


@dataclass(frozen=True, slots=True)
class _Starved:
    """One rank's step: kernels, those that found the device idle, kernels' median length, idle time for want of launches."""

    view: DeviceView
    kernels: int
    awaited: int
    length: float
    idle: int

    @property
    def mostly(self) -> bool:
        """Whether the device waits for most of its kernels."""
        return self.kernels >= _ENOUGH and self.awaited >= _MOST * self.kernels


def detect(case: Case) -> list[Finding]:
    """Steps in which launching takes longer than what is launched."""
    found = {
        number: [one for view in device_views(case, graph) if (one := _starved(view)).mostly]
        for number, graph in case.graphs.items()
    }
    everything = [one for many in found.values() for one in many]
    if not everything:
        return []

    def changed(graph: StepGraph) -> Change | None:
        segments = tuple(segment for one in found[graph.step] for segment in _host_time(one.view))
        return Change(segments=segments, after=reads_gradients(case, graph)) if segments else None

    slowed = any(one.view.trace.header.with_stack for one in everything)
    description = Description(
        cause="launch-bound",
        confidence="medium: Python stacks were recorded, which slows the host; record without with_stack to be sure"
        if slowed
        else "high: launches and kernels were recorded, and the kernels start right after their launch",
        evidence=[_sentence(everything), *_slow_calls(everything)],
        fix="launch less often: torch.compile(model) or CUDA graphs (mode='reduce-overhead'), fused=True or foreach=True in "
        "the optimizer, a larger batch; no bucket size and no faster network helps here",
        reference="https://pytorch.org/tutorials/recipes/recipes/tuning_guide.html (fuse operations, CUDA graphs); "
        "facebookresearch/fairchem pull 2193",
        ranks=sorted({one.view.rank for one in everything}),
    )
    return priced(case, case.price(changed), description)


def _starved(view: DeviceView) -> _Starved:
    """Kernels that were launched when everything before them on the device was over."""
    a = view.activities
    own = np.flatnonzero(view.compute)
    busy_until = (
        np.concatenate(([view.one.step.window.start], np.maximum.accumulate(a.end[own])[:-1]))
        if len(own)
        else own
    )
    awaited = a.launch[own] >= busy_until
    window = view.one.step.window
    idle = iv.total(iv.clip(view.one.basis.starved, window.start, window.end))
    length = median((a.end - a.start)[own].tolist()) if len(own) else 0.0
    return _Starved(view, len(own), int(awaited.sum()), length, idle)


def _host_time(view: DeviceView) -> list[Segment]:
    """All that the host's threads do in the step, waiting for input left out: that is no launching."""
    trace, events, window = view.trace, view.trace.events, view.one.step.window
    threads = trace.events.thread
    span = iv.union(np.array([window.start]), np.array([window.end]))
    rows = host.select(trace, lambda name: _INPUT.fullmatch(name) is not None)
    working = view.timeline.on_host.reaching_into(window)
    working = working[events.category[working] != Category.USER_ANNOTATION]
    return [
        Segment(view.one.index, thread, start, end)
        for thread in np.unique(threads[working]).tolist()
        for mine in (rows[threads[rows] == thread],)
        for start, end in iv.subtract(span, iv.union(events.start[mine], events.end[mine])).tolist()
    ]


def _sentence(found: list[_Starved]) -> str:
    awaited = median([one.awaited / one.kernels for one in found])
    idle = median([one.idle / one.view.one.step.wall for one in found])
    return (
        f"{awaited:.0%} of {median([one.kernels for one in found]):,.0f} kernels a step were launched when the device was idle; "
        f"it had nothing to do for {idle:.0%} of the step; a kernel takes {median([o.length for o in found]) / 1e3:.3g} us, "
        f"and there is one every {_every(found) / 1e3:.3g} us"
    )


def _every(found: list[_Starved]) -> float:
    """The host's time from one launch to the next; ns."""
    return median([one.view.one.step.wall / one.kernels for one in found])


def _slow_calls(found: list[_Starved]) -> list[str]:
    """Runtime calls beside launches that take much of the step, such as cudaMalloc."""
    one = found[0].view
    events, window = one.trace.events, one.one.step.window
    inside = (
        (events.category == Category.RUNTIME) & (events.start >= window.start) & (events.start < window.end)
    )
    names, at = np.unique(events.name[inside], return_inverse=True)
    taken = np.bincount(at, weights=events.duration[inside]) if len(names) else np.zeros(0)
    return [
        f"{one.trace.names[name]} took {time / 1e6:.1f} ms of step {one.one.number} on rank {one.rank}"
        for name, time in zip(names.tolist(), taken.tolist(), strict=True)
        if time > 0.1 * one.one.step.wall and "Launch" not in one.trace.names[name]
    ]
