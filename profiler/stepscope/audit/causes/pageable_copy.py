"""The batch is copied from pageable memory: slowly, and the host waits for it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from stepscope.audit.case import Case
from stepscope.audit.causes import reads
from stepscope.audit.causes.device import DeviceView, device_views, reads_gradients
from stepscope.audit.causes.finding import Description, mebibytes, milliseconds, priced
from stepscope.audit.causes.reads import Read
from stepscope.audit.result import Finding
from stepscope.replay.change import Change
from stepscope.replay.graph import StepGraph
from stepscope.replay.joined import Key
from stepscope.stats import median
from stepscope.trace.columns import Category

_PAGEABLE = "HtoD (Pageable"
_PINNED = "HtoD (Pinned"
_USUAL_RATE = 25.0
"""GB/s of a copy from pinned memory where the trace has none: what PCIe 4.0 x16 sustains."""


@dataclass(frozen=True, slots=True)
class _Upload:
    """The uploads of one rank's step: places of the copies, and the reads of which they are part."""

    view: DeviceView
    places: list[int]
    waits: list[Read]


def detect(case: Case) -> list[Finding]:
    """Copies to the device whose source was pageable memory."""
    found = {
        number: [
            upload
            for view in device_views(case, graph)
            if (upload := _upload(view, reads.all_reads(case, graph))).places
        ]
        for number, graph in case.graphs.items()
    }
    everything = [upload for many in found.values() for upload in many]
    if not everything:
        return []
    measured = _pinned_rate(case)
    rate = measured or _USUAL_RATE

    def changed(graph: StepGraph) -> Change | None:
        factors = {
            key: factor for upload in found[graph.step] for key, factor in _factors(upload, rate).items()
        }
        calls = {
            (upload.view.one.index, call)
            for upload in found[graph.step]
            for r in upload.waits
            for call in r.calls
        }
        if not factors:
            return None
        return Change(activities=factors, unblocked=frozenset(calls), after=reads_gradients(case, graph))

    description = Description(
        cause="pageable-copy",
        confidence=f"high: priced at {rate:.3g} GB/s, as this trace's copies from pinned memory ran"
        if measured
        else f"medium: priced at {rate:.3g} GB/s, as PCIe 4.0 x16 carries from pinned memory; the trace has no such copy",
        evidence=[_sentence(everything)],
        fix="DataLoader(..., pin_memory=True) and batch.to(device, non_blocking=True)",
        reference="https://pytorch.org/tutorials/intermediate/pinmem_nonblock.html; pytorch/pytorch issue 39694",
        ranks=sorted({upload.view.rank for upload in everything}),
    )
    return priced(case, case.price(changed), description)


def _upload(view: DeviceView, waits: Iterable[Read]) -> _Upload:
    a = view.activities
    copies = np.flatnonzero(a.mine & (view.trace.events.category[a.row] == Category.MEMCPY))
    places = [k for k in copies.tolist() if _PAGEABLE in view.name(k)]
    mine = [read for read in waits if read.view is view and set(read.copies) & set(places)]
    return _Upload(view, places, mine)


def _factors(upload: _Upload, rate: float) -> dict[Key, float]:
    """What each copy's time would shrink to from pinned memory; a copy of unknown size keeps its time."""
    view, a = upload.view, upload.view.activities
    factors: dict[Key, float] = {}
    for k in upload.places:
        size, took = view.trace.copied_bytes.get(int(a.row[k])), int(a.end[k] - a.start[k])
        factors[view.key(k)] = min(1.0, size / rate / took) if size is not None and took else 1.0
    return factors


def _pinned_rate(case: Case) -> float | None:
    """GB/s of the trace's own large copies from pinned memory, the median."""
    rates = [
        size / int(recording.trace.events.duration[row])
        for recording in case.recordings
        for row, size in recording.trace.copied_bytes.items()
        if size >= 2**20
        and _PINNED in recording.trace.names[recording.trace.events.name[row]]
        and recording.trace.events.duration[row] > 0
    ]
    return median(rates) if rates else None


def _sentence(found: list[_Upload]) -> str:
    upload = found[0]
    view, a = upload.view, upload.view.activities
    sizes = [view.trace.copied_bytes.get(int(a.row[k]), 0) for k in upload.places]
    took = median(
        [sum(int(u.view.activities.end[k] - u.view.activities.start[k]) for k in u.places) for u in found]
    )
    blocked = median([sum(read.blocked for read in u.waits) for u in found])
    size = f" of {mebibytes(sum(sizes))}" if sum(sizes) else ""
    return (
        f"{len(upload.places)} copies{size} a step from pageable memory took {milliseconds(took)}, and blocked the host for "
        f"{milliseconds(blocked)}; first in step {view.one.number} on rank {view.rank} at "
        f"{milliseconds(int(a.start[upload.places[0]]))}"
    )
