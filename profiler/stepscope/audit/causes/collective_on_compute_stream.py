"""Gradient collectives are on the compute stream, so that nothing runs beside them."""

from __future__ import annotations

from stepscope.audit.case import Case
from stepscope.audit.causes.device import DeviceView, device_views, reads_gradients
from stepscope.audit.causes.finding import Description, milliseconds, priced
from stepscope.audit.causes.framework import DEEPSPEED, FSDP
from stepscope.audit.result import Finding
from stepscope.replay.change import Change
from stepscope.replay.graph import StepGraph
from stepscope.stats import median


def detect(case: Case) -> list[Finding]:
    """Gradient collectives on a stream on which backward computes."""
    found = {
        number: [(view, places) for view in device_views(case, graph) if (places := _places(view))]
        for number, graph in case.graphs.items()
    }
    everything = [one for many in found.values() for one in many]
    if not everything:
        return []

    def changed(graph: StepGraph) -> Change | None:
        keys = frozenset(view.key(k) for view, places in found[graph.step] for k in places)
        return Change(moved=keys, after=reads_gradients(case, graph)) if keys else None

    view, places = everything[0]
    total = median([sum(_length(view, k) for k in places) for view, places in everything])
    stream = int(view.trace.events.stream[view.activities.row[places[0]]])
    description = Description(
        cause="collective-on-compute-stream",
        confidence="high: the stream of every kernel was recorded",
        evidence=[
            f"{len(places)} gradient collectives of step {view.one.number} on rank {view.rank} ran on stream {stream}, where "
            f"backward computes, {milliseconds(total)} a step in all; first {view.collectives[places[0]].kind} at "
            f"{milliseconds(int(view.activities.start[places[0]]))}"
        ],
        fix="start collectives with async_op=True and wait() after backward; in a DDP communication hook return "
        "dist.all_reduce(..., async_op=True).get_future() and do not wait inside; else torch.cuda.stream(a side stream)",
        fix_with={
            FSDP: "leave reductions to FSDP's own stream: no custom reduce-scatter with async_op=False",
            DEEPSPEED: 'DeepSpeed\'s "overlap_comm": true, which reduces on a stream of its own',
        },
        reference="pytorch/pytorch pull 148590 (async_op=False runs on the current stream)",
        ranks=sorted({view.rank for view, _ in everything}),
    )
    return priced(case, case.price(changed), description)


def _places(view: DeviceView) -> list[int]:
    """The gradient collectives after which backward went on computing on the same stream."""
    a = view.activities
    backward = view.backward_compute()
    if not len(backward):
        return []
    streams, last = set(a.stream[backward].tolist()), int(a.start[backward].max())
    places = [k for k, op in view.collectives.items() if op.gradient and int(a.stream[k]) in streams]
    return places if any(a.start[k] < last for k in places) else []


def _length(view: DeviceView, place: int) -> int:
    return int(view.activities.end[place] - view.activities.start[place])
