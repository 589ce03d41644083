"""Settings that make the host wait for each collective, or for each kernel."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from stepscope.audit.case import Case
from stepscope.audit.causes.device import DeviceView, device_views, reads_gradients
from stepscope.audit.causes.finding import Description, milliseconds, priced
from stepscope.audit.result import Finding
from stepscope.replay.change import Change
from stepscope.replay.graph import StepGraph
from stepscope.replay.joined import Key
from stepscope.replay.network import Edge
from stepscope.stats import median

_WAITS = ("TORCH_NCCL_BLOCKING_WAIT", "NCCL_BLOCKING_WAIT")
_LAUNCHES = ("CUDA_LAUNCH_BLOCKING", "HIP_LAUNCH_BLOCKING", "AMD_SERIALIZE_KERNEL")
_OFF = ("", "0", "false")
_ALL = 0.9
"""With blocking launches so large a share of the launch calls last until their kernel is over."""


def detect(case: Case) -> list[Finding]:
    """Hosts blocked inside communication operators, or in every launch."""
    return [*_blocking_waits(case), *_blocking_launches(case)]


def _blocking_waits(case: Case) -> list[Finding]:
    found = {number: _waited_for(case, graph) for number, graph in case.graphs.items()}
    if not any(found.values()):
        return []

    def changed(graph: StepGraph) -> Change | None:
        if not found[graph.step]:
            return None
        return Change(unblocked=frozenset(found[graph.step]), after=reads_gradients(case, graph))

    description = Description(
        cause="blocking-environment",
        confidence=_confidence(case, _WAITS, "the host is inside the operator until its collective is over"),
        evidence=[_sentence(found)],
        fix=f"unset {' and '.join(_WAITS)}; the watchdog (TORCH_NCCL_ASYNC_ERROR_HANDLING, the default) catches hangs too",
        reference="pytorch/pytorch issues 50820 and 32162 (NCCL_BLOCKING_WAIT)",
        ranks=sorted({view.rank for many in found.values() for view, _ in many.values()}),
    )
    return priced(case, case.price(changed), description)


def _waited_for(case: Case, graph: StepGraph) -> dict[Key, tuple[DeviceView, int]]:
    """The collectives that a host thread waited for without a call of the runtime's, as the graph found them."""
    network = graph.network
    edges = np.flatnonzero(network.kind == Edge.BLOCK)
    blocking = set(zip(network.owner[edges].tolist(), network.row[edges].tolist(), strict=True))
    return {
        view.key(k): (view, k)
        for view in device_views(case, graph)
        for k in view.collectives
        if view.key(k) in blocking
    }


def _sentence(found: Mapping[int, Mapping[Key, tuple[DeviceView, int]]]) -> str:
    everything = [one for many in found.values() for one in many.values()]
    view, place = everything[0]
    a = view.activities
    ranks = len({view.one.index for view, _ in everything})
    held = [int(view.activities.end[k] - view.activities.launch[k]) for view, k in everything]
    return (
        f"the host stayed in the operator of {len(everything) / len(found) / ranks:.3g} collectives a step until they were over, "
        f"{milliseconds(sum(held) / len(found) / ranks)} a step in all; first in step {view.one.number} on rank {view.rank}: "
        f"{view.collectives[place].kind}, launched at {milliseconds(int(a.launch[place]))}, over at "
        f"{milliseconds(int(a.end[place]))}"
    )


def _blocking_launches(case: Case) -> list[Finding]:
    found = {
        number: [(view, calls) for view in device_views(case, graph) if len(calls := _blocking_calls(view))]
        for number, graph in case.graphs.items()
    }
    everything = [one for many in found.values() for one in many]
    if not everything:
        return []

    def changed(graph: StepGraph) -> Change | None:
        calls = frozenset((view.one.index, call) for view, calls in found[graph.step] for call in calls)
        return Change(unblocked=calls, after=reads_gradients(case, graph)) if calls else None

    count = median([len(calls) for _, calls in everything])
    description = Description(
        cause="blocking-environment",
        confidence=_confidence(case, _LAUNCHES, "every launch call lasts until its kernel is over"),
        evidence=[
            f"{count:,.0f} launch calls a step, at least {_ALL:.0%} of all, returned only when their kernel was over"
        ],
        fix=f"unset {_LAUNCHES[0]} ({', '.join(_LAUNCHES[1:])} on ROCm): it is for debugging",
        reference="https://docs.nvidia.com/cuda/cuda-c-programming-guide/ (CUDA_LAUNCH_BLOCKING)",
        ranks=sorted({view.rank for view, _ in everything}),
    )
    return priced(case, case.price(changed), description)


def _blocking_calls(view: DeviceView) -> list[int]:
    """Rows of the launch calls, where nearly all lasted until their kernel was over; else none."""
    a, events = view.activities, view.trace.events
    own = np.flatnonzero(view.compute)
    lasted = events.end[a.call[own]] >= a.end[own]
    calls: list[int] = a.call[own][lasted].tolist()
    return calls if len(own) and lasted.mean() >= _ALL else []


def _confidence(case: Case, variables: tuple[str, ...], signature: str) -> str:
    environment = (case.run or {}).get("environment") or {}
    given = [name for name in variables if environment.get(name, "").lower() not in _OFF]
    if given:
        return f"high: the run had {given[0]}={environment[given[0]]}, and {signature}"
    where = (
        "and the run's environment does not name the setting"
        if case.run
        else "the environment was not recorded"
    )
    return f"medium: {signature}; {where}"
