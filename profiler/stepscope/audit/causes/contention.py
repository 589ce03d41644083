"""The same kernels take longer while a collective runs (CAUSES 5.3)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from stepscope import intervals as iv
from stepscope.audit.case import Case
from stepscope.audit.causes.device import DeviceView, device_views
from stepscope.audit.causes.finding import Description, milliseconds, priced
from stepscope.audit.overlap import span_union
from stepscope.audit.result import Finding
from stepscope.replay.change import Change
from stepscope.replay.graph import StepGraph
from stepscope.replay.joined import Key
from stepscope.stats import median

_FEWEST = 3
_ALIKE = 0.1
"""Kernels of one name are of one size where, alone, half of them differ from their median by at most this share."""


@dataclass(frozen=True, slots=True)
class _Kernel:
    """One kernel: how long it took, and for how much of that a collective ran; ns."""

    key: Key
    name: str
    took: int
    beside: int


@dataclass(frozen=True, slots=True)
class _Slowdown:
    """What was measured: by kernel the time lost to collectives, over how much time beside them, and the names compared."""

    lost: Mapping[Key, float]
    kernels: Mapping[Key, _Kernel]
    beside: int
    names: int

    @property
    def share(self) -> float:
        """Of the time beside a collective, what was lost."""
        return sum(self.lost.values()) / self.beside if self.beside else 0.0


def detect(case: Case) -> list[Finding]:
    """Kernels of equal name and length, alone and beside a collective."""
    views = [view for graph in case.graphs.values() for view in device_views(case, graph)]
    by_step: dict[int, set[Key]] = defaultdict(set)
    kernels: list[_Kernel] = []
    for view in views:
        mine = list(_kernels(view))
        kernels += mine
        by_step[view.one.number].update(kernel.key for kernel in mine)
    slowdown = _slowdown(kernels)
    if slowdown.share <= 0:
        return []

    def changed(graph: StepGraph) -> Change | None:
        factors = {
            key: max(0.0, 1.0 - slowdown.lost[key] / slowdown.kernels[key].took)
            for key in by_step[graph.step] & slowdown.lost.keys()
        }
        return Change(activities=factors) if factors else None

    description = Description(
        cause="contention",
        confidence=f"medium: {slowdown.names} kinds of kernel were compared by name; shapes and clocks may differ too",
        evidence=[_sentence(slowdown, len(views))],
        fix="give collectives fewer multiprocessors: NCCL_MAX_CTAS=8 (or NCCL_MAX_NCHANNELS; try 4 to 16), and check that their "
        "bus bandwidth does not fall more than compute gains",
        reference="NVIDIA/nccl issues 338 and 1433; "
        "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html (NCCL_MAX_CTAS)",
    )
    return priced(case, case.price(changed), description)


def _kernels(view: DeviceView) -> Iterable[_Kernel]:
    a = view.activities
    moving = span_union([(op.start, op.end) for op in view.collectives.values()])
    own = np.flatnonzero(view.compute)
    beside = iv.covered_within(moving, a.start[own], a.end[own])
    for k, overlap in zip(own.tolist(), beside.tolist(), strict=True):
        yield _Kernel(view.key(k), view.name(k), int(a.end[k] - a.start[k]), overlap)


def _slowdown(kernels: Iterable[_Kernel]) -> _Slowdown:
    """Over all kinds of kernel that run alone often enough and take about as long each time then."""
    by_name: dict[str, list[_Kernel]] = defaultdict(list)
    for kernel in kernels:
        by_name[kernel.name].append(kernel)
    lost: dict[Key, float] = {}
    found: dict[Key, _Kernel] = {}
    names = 0
    for same in by_name.values():
        alone = [kernel.took for kernel in same if not kernel.beside]
        slowed = [kernel for kernel in same if kernel.beside]
        if min(len(alone), len(slowed)) < _FEWEST or not _alike(alone):
            continue
        names += 1
        usual = median(alone)
        for kernel in slowed:
            lost[kernel.key] = kernel.took - usual
            found[kernel.key] = kernel
    return _Slowdown(lost, found, sum(kernel.beside for kernel in found.values()), names)


def _alike(times: list[int]) -> bool:
    usual = median(times)
    return usual > 0 and median([abs(time - usual) for time in times]) <= _ALIKE * usual


def _sentence(slowdown: _Slowdown, steps: int) -> str:
    lost, beside = sum(slowdown.lost.values()), slowdown.beside
    return (
        f"beside a collective the same kernels took {1 / max(1e-9, 1 - slowdown.share):.2f} times as long as alone: "
        f"{milliseconds(lost / steps)} a step and rank more, of {milliseconds(beside / steps)} beside collectives "
        f"({len(slowdown.lost)} kernels compared)"
    )
