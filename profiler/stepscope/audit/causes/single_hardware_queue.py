"""CUDA_DEVICE_MAX_CONNECTIONS=1: work starts in the order of its launch, whatever its stream."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from stepscope.audit.case import Case
from stepscope.audit.causes.device import DeviceView, device_views, reads_gradients
from stepscope.audit.causes.finding import Description, milliseconds, priced
from stepscope.audit.result import Finding
from stepscope.replay.change import Change
from stepscope.replay.graph import StepGraph
from stepscope.stats import median

_VARIABLE = "CUDA_DEVICE_MAX_CONNECTIONS"
_TOGETHER = 5_000
"""What was held in the queue starts within so many ns of what it was queued behind."""
_ALWAYS = 0.98
"""In one queue work never overtakes what was launched before it; clocks of device rows leave some doubt."""
_FEWEST = 3


@dataclass(frozen=True, slots=True)
class _Held:
    """Places of kernels that were held, with the collective that each was queued behind, and how long it could have run."""

    view: DeviceView
    kernels: dict[int, int]
    lost: int


def detect(case: Case) -> list[Finding]:
    """Compute that starts when a collective launched before it does, though it could have started long before."""
    found = {
        number: [held for view in device_views(case, graph) if (held := _held(view)) is not None]
        for number, graph in case.graphs.items()
    }
    everything = [held for many in found.values() for held in many]
    if len(everything) == 0 or sum(len(held.kernels) for held in everything) < _FEWEST:
        return []

    def changed(graph: StepGraph) -> Change | None:
        keys = frozenset(held.view.key(k) for held in found[graph.step] for k in held.kernels)
        return Change(unheld=keys, after=reads_gradients(case, graph)) if keys else None

    description = Description(
        cause="single-hardware-queue",
        confidence=_confidence(case),
        evidence=[_sentence(everything)],
        fix=f"unset {_VARIABLE}, or set it to 8 (the default) or 32; tensor parallelism without FSDP is the one user of 1",
        reference="pytorch/torchtitan issue 1147; NVIDIA/Megatron-LM issue 636",
        ranks=sorted({held.view.rank for held in everything}),
    )
    return priced(case, case.price(changed), description)


def _held(view: DeviceView) -> _Held | None:
    """None where anything overtakes: then there is more than one queue."""
    a = view.activities
    order = np.flatnonzero(a.mine)
    order = order[np.argsort(a.launch[order], kind="stable")]
    if len(order) < 2:
        return None
    crossing = a.stream[order][1:] != a.stream[order][:-1]
    in_order = a.start[order][1:] >= a.start[order][:-1]
    if not crossing.any() or in_order[crossing].mean() < _ALWAYS:
        return None
    free = _stream_free(view)
    kernels: dict[int, int] = {}
    lost = 0
    for before, k in zip(order[:-1].tolist(), order[1:].tolist(), strict=True):
        if before not in view.collectives or not view.compute[k]:
            continue
        could, start = max(int(a.launch[k]), free[k]), int(a.start[k])
        if 0 <= start - a.start[before] <= _TOGETHER and start - could > 2 * _TOGETHER:
            kernels[k] = before
            lost += start - could
    return _Held(view, kernels, lost) if kernels else None


def _stream_free(view: DeviceView) -> list[int]:
    """For each activity, when its stream was done with what came before."""
    a = view.activities
    free: list[int] = []
    until: dict[int, int] = {}
    for stream, end in zip(a.stream.tolist(), a.end.tolist(), strict=True):
        free.append(until.get(stream, int(a.start[0])))
        until[stream] = max(end, free[-1])
    return free


def _confidence(case: Case) -> str:
    value = ((case.run or {}).get("environment") or {}).get(_VARIABLE)
    if value == "1":
        return f"high: the run had {_VARIABLE}=1, and no kernel overtakes one launched before it"
    if value is not None:
        return f"low: the run had {_VARIABLE}={value}, yet no kernel overtakes one launched before it"
    return f"medium: no kernel overtakes one launched before it; whether {_VARIABLE} was 1 is not recorded"


def _sentence(found: list[_Held]) -> str:
    one = found[0]
    kernel, behind = next(iter(one.kernels.items()))
    a = one.view.activities
    count = median([len(held.kernels) for held in found])
    return (
        f"{count:.3g} kernels of backward a step could have run and started only when the collective launched before "
        f"them did, {milliseconds(median([held.lost for held in found]))} later in all; first in step {one.view.one.number} on "
        f"rank {one.view.rank}: a kernel on stream {_stream(one.view, kernel)} at {milliseconds(int(a.start[kernel]))}, behind "
        f"{one.view.collectives[behind].kind} on stream {_stream(one.view, behind)}"
    )


def _stream(view: DeviceView, place: int) -> int:
    return int(view.trace.events.stream[view.activities.row[place]])
