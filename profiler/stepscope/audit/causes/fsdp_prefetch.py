"""FSDP gathers parameters too late, or once too often."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from stepscope.audit.case import Case
from stepscope.audit.causes.device import DeviceView, device_views
from stepscope.audit.causes.finding import Description, milliseconds, priced
from stepscope.audit.result import Finding
from stepscope.replay.change import Change
from stepscope.replay.graph import StepGraph
from stepscope.stats import median
from stepscope.trace import host, roles
from stepscope.trace.recording import Phase

_AHEAD = 20_000
"""A gather that waited for compute was launched so many ns before that was over: else it waited for the host."""
_MOST = 0.5
_UNIT = re.compile(r"FSDP::all_gather \((.*)\)")
_USUAL = 1
"""Gathers of one unit in one phase of a step."""

Found = Mapping[int, list[tuple[DeviceView, list[int]]]]


def detect(case: Case) -> list[Finding]:
    """Gathers that begin only when the compute before them is over, and gathers of what was just gathered."""
    late: Found = {
        number: [(view, places) for view in device_views(case, graph) if (places := _late(view))]
        for number, graph in case.graphs.items()
    }
    doubled: Found = {
        number: [(view, places) for view in device_views(case, graph) if (places := _doubled(view))]
        for number, graph in case.graphs.items()
    }
    return [*_missing(case, late), *_twice(case, doubled)]


def _missing(case: Case, found: Found) -> list[Finding]:
    everything = [one for many in found.values() for one in many]
    if not everything:
        return []

    def changed(graph: StepGraph) -> Change | None:
        keys = frozenset(view.key(k) for view, places in found[graph.step] for k in places)
        return Change(unheld=keys, moved=keys) if keys else None

    view, places = everything[0]
    a = view.activities
    count = median([len(places) for _, places in everything])
    length = median(
        [sum(int(view.activities.end[k] - view.activities.start[k]) for k in p) for view, p in everything]
    )
    description = Description(
        cause="fsdp-prefetch",
        confidence="high: the gathers start when the compute before them ends, though the communication stream was free",
        evidence=[
            f"{count:.3g} all-gathers a step began only when the compute before them was over, {milliseconds(length)} in all; "
            f"first in step {view.one.number} on rank {view.rank} at {milliseconds(int(a.start[places[0]]))}"
        ],
        fix="FSDP2: leave reshard and unshard to its own streams, and where the host is slow call "
        "set_modules_to_forward_prefetch() and set_modules_to_backward_prefetch(); FSDP1: "
        "backward_prefetch=BackwardPrefetch.BACKWARD_PRE, forward_prefetch=True",
        reference="https://pytorch.org/docs/stable/fsdp.html (backward_prefetch); pytorch/pytorch issue 64803",
        ranks=sorted({view.rank for view, _ in everything}),
    )
    return priced(case, case.price(changed), description)


def _late(view: DeviceView) -> list[int]:
    """Parameter gathers that waited for the compute before them and held up the compute after them, where most do."""
    gathers = [
        k for k, op in view.collectives.items() if op.role == roles.PARAMETER and op.kind == "all_gather"
    ]
    gathers = [k for k in gathers if view.phase[k] in (Phase.FORWARD, Phase.BACKWARD)]
    late = [k for k in gathers if _waited(view, k)]
    return late if len(late) > _MOST * len(gathers) else []


def _waited(view: DeviceView, gather: int) -> bool:
    """Whether a gather began after all compute launched before it, and ended before any that was launched after it."""
    a = view.activities
    launched_before = view.compute & (a.launch < a.launch[gather])
    later = np.flatnonzero(view.compute & (a.launch > a.launch[gather]))
    if not launched_before.any() or not len(later):
        return False
    over, following = int(a.end[launched_before].max()), int(later[np.argmin(a.launch[later])])
    ahead = a.launch[gather] < over - _AHEAD
    return bool(ahead and over <= a.start[gather] and a.end[gather] <= a.start[following])


def _twice(case: Case, found: Found) -> list[Finding]:
    everything = [one for many in found.values() for one in many]
    if not everything:
        return []

    def changed(graph: StepGraph) -> Change | None:
        keys = [view.key(k) for view, places in found[graph.step] for k in places]
        return Change(transfers=dict.fromkeys(keys, 0.0), unwaited=frozenset(keys)) if keys else None

    view, places = everything[0]
    description = Description(
        cause="fsdp-prefetch",
        confidence="high: the gathers name their unit",
        evidence=[
            f"{median([len(places) for _, places in everything]):.3g} all-gathers a step are of a unit that was gathered before "
            f"in the same phase, such as {_unit_of(view, places[0])} in step {view.one.number} on rank {view.rank}, at "
            f"{milliseconds(int(view.activities.start[places[0]]))}"
        ],
        fix="wrap with checkpoint_wrapper inside FSDP's unit (apply activation checkpointing before fully_shard), so that "
        "recomputation finds the parameters that backward gathered",
        reference="pytorch/pytorch issue 105635 (checkpointing gathers twice)",
        ranks=sorted({view.rank for view, _ in everything}),
    )
    return priced(case, case.price(changed), description)


@dataclass(frozen=True, slots=True)
class _Unit:
    """A gather's unit and phase."""

    name: str
    phase: int


def _doubled(view: DeviceView) -> list[int]:
    """Places of the gathers after the first of the same unit in the same phase of one micro-batch."""
    seen: dict[_Unit, list[int]] = defaultdict(list)
    for k, op in view.collectives.items():
        unit = _unit_of(view, k) if op.kind == "all_gather" else None
        if unit is not None:
            seen[_Unit(unit, int(view.phase[k]))].append(k)
    batches = max(
        1, min((len(many) for unit, many in seen.items() if unit.phase == Phase.FORWARD), default=1)
    )
    return sorted(k for many in seen.values() for k in many[_USUAL * batches :])


def _unit_of(view: DeviceView, place: int) -> str | None:
    """The name of the unit that a gather is of, None where FSDP does not say."""
    trace, a = view.trace, view.activities
    spans = host.HostSpans(trace, host.select(trace, lambda name: _UNIT.fullmatch(name) is not None))
    row = int(spans.holding(a.thread[place : place + 1], a.launch[place : place + 1])[0])
    named = _UNIT.fullmatch(trace.names[trace.events.name[row]]) if row != host.NO_ROW else None
    return named[1] if named else None
