"""Backward was compiled as one graph, so that all gradients come at its end."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from stepscope.audit.case import Case
from stepscope.audit.causes.device import DeviceView, device_views
from stepscope.audit.causes.finding import Description, milliseconds, priced
from stepscope.audit.causes.framework import DEEPSPEED, FSDP
from stepscope.audit.result import Finding
from stepscope.replay.change import Change
from stepscope.replay.graph import StepGraph
from stepscope.replay.joined import Key
from stepscope.trace import host

_COMPILED = ("CompiledFunctionBackward",)


@dataclass(frozen=True, slots=True)
class _Late:
    """One rank's step: the compiled node, and the gradient collectives, all launched after it, in launch order."""

    view: DeviceView
    start: int
    end: int
    places: list[int]


def detect(case: Case) -> list[Finding]:
    """One compiled node a step, and every gradient collective after it."""
    found = {
        number: [late for view in device_views(case, graph) if (late := _late(view)) is not None]
        for number, graph in case.graphs.items()
    }
    everything = [late for many in found.values() for late in many]
    if not everything:
        return []

    def changed(graph: StepGraph) -> Change | None:
        launched = {key: time for late in found[graph.step] for key, time in _spread(late).items()}
        return Change(launched=launched) if launched else None

    one = everything[0]
    first = one.view.activities.launch[one.places[0]]
    description = Description(
        cause="compiled-backward",
        confidence="medium: priced as though gradients came evenly in backward; inside one graph none is seen before its end",
        evidence=[
            f"step {one.view.one.number} on rank {one.view.rank}: one CompiledFunctionBackward, launched from "
            f"{milliseconds(one.start)} to {milliseconds(one.end)}; all {len(one.places)} gradient collectives after it, the "
            f"first at {milliseconds(int(first))}"
        ],
        fix="wrap in DistributedDataParallel before torch.compile, with torch._dynamo.config.optimize_ddp = True (the default: "
        "DDPOptimizer cuts the graph at the buckets' borders), or 'python_reducer' with compiled autograd",
        fix_with=dict.fromkeys(
            (FSDP, DEEPSPEED),
            "compile each layer by itself (layer.compile()): its gradients leave when its own graph is over",
        ),
        reference="pytorch/pytorch issue 109774; https://pytorch.org/docs/stable/torch.compiler_faq.html",
        ranks=sorted({late.view.rank for late in everything}),
    )
    return priced(case, case.price(changed), description)


def _late(view: DeviceView) -> _Late | None:
    trace, events, window = view.trace, view.trace.events, view.one.step.window
    rows = host.select(trace, lambda name: name in _COMPILED)
    rows = rows[(events.start[rows] >= window.start) & (events.start[rows] < window.end)]
    places = sorted(
        (k for k, op in view.collectives.items() if op.gradient), key=lambda k: int(view.activities.launch[k])
    )
    if len(rows) != 1 or not places:
        return None
    start, end = int(events.start[rows[0]]), int(events.end[rows[0]])
    return _Late(view, start, end, places) if view.activities.launch[places[0]] >= end else None


def _spread(late: _Late) -> dict[Key, int]:
    """When each bucket would have been ready, had the gradients come evenly over the graph's time on the device."""
    view, a = late.view, late.view.activities
    inside = np.flatnonzero(view.compute & (a.launch >= late.start) & (a.launch < late.end))
    if not len(inside):
        return {}
    begin, over = int(a.start[inside].min()), int(a.end[inside].max())
    sizes = np.cumsum([view.collectives[k].bytes or 1 for k in late.places])
    ready = begin + (over - begin) * sizes / sizes[-1]
    return {view.key(k): int(time) for k, time in zip(late.places, ready.tolist(), strict=True)}
