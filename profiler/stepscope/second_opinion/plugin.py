"""torch-tb-profiler, TensorBoard's plugin: the definitions of its distributed view, computed from the file's own rows.

As of torch-tb-profiler 0.4.3 (torch_tb_profiler/profiler/event_parser.py, overall_parser.py, trace.py): communication is
the five operators it knows of NCCL and gloo, as annotations: the host's time in the call, and the device's copy of the
annotation where one was recorded. A kernel communicates only if it carries the annotation's own `External id`, which those
of `record_param_comms` do not; all other kernels compute. Without kernels every operator and annotation computes. Steps are
the windows of ProfilerStep, host and device copies alike; the figures are sums over them.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from stepscope import intervals as iv
from stepscope.intervals import Intervals
from stepscope.second_opinion.facts import Counted, FileFacts, Row
from stepscope.second_opinion.figures import Answer, figure
from stepscope.second_opinion.result import Figure, Rung
from stepscope.units import ns_to_ms

NAME = "torch-tb-profiler"

_KINDS = ("broadcast", "reduce", "all_reduce", "all_gather", "reduce_scatter")
_COMMUNICATES = frozenset(f"{library}:{kind}" for library in ("nccl", "gloo") for kind in _KINDS)
_STEP = "ProfilerStep#"
_ANNOTATIONS = ("user_annotation", "gpu_user_annotation")
_OPERATORS = ("cpu_op", "operator", "python")
_LOADER = ("enumerate(DataLoader)#", "enumerate(DataPipe)#")

OVERLAP_TOLERANCE = 0.00001
TIME_TOLERANCE = 0.0001
"""ms: it adds floats of microseconds, of which the last digits are lost."""


def figures(facts: FileFacts, answer: Answer) -> list[Figure]:
    """Its overlap and its communication, from our definition to its own."""
    everywhere = _counted(facts.rows)
    steps = _steps(facts.rows)
    inside = [Counted(iv.intersect(everywhere.comm, one), everywhere.compute) for one in steps]
    comm = sum(iv.total(one.comm) for one in inside)
    hidden = sum(iv.total(iv.intersect(one.comm, one.compute)) for one in inside)
    whole = facts.everything()
    on_device = any(_is_kernel(row) for row in facts.rows)
    others = "its kernels compute" if on_device else "all other ones compute"
    annotations = f"communication is nccl:/gloo: annotations, {others}"
    windows = "torch-tb-profiler: inside its ProfilerStep windows"
    overlap = [
        *facts.overlap_rungs(),
        Rung(definition=annotations, value=everywhere.overlap),
        Rung(definition=windows, value=hidden / comm if comm else None),
    ]
    time = [
        Rung(definition="stepscope: all collectives of the file", value=whole.comm_ms),
        Rung(definition=annotations, value=everywhere.comm_ms),
        Rung(definition=windows, value=ns_to_ms(comm)),
    ]
    return [
        figure("overlap", "share", overlap, answer.get("overlap"), OVERLAP_TOLERANCE),
        figure("comm", "ms", time, answer.get("communication_ms"), TIME_TOLERANCE),
    ]


def remarks(facts: FileFacts) -> list[str]:
    """Kernels that it takes for compute, and operators that it does not know."""
    ids = _communicating_ids(facts.rows)
    recording = facts.recording
    on_device = [op for op in recording.collectives if recording.device in ("cuda", "rocm")]
    found = []
    if on_device and not any(_is_kernel(row) and row.external_id in ids for row in facts.rows):
        found.append(
            f"{len(on_device)} kernels of the communication library are compute for it: they carry the External id of "
            "record_param_comms and not the annotation's"
        )
    unknown = {
        row.name
        for row in facts.rows
        if row.cat in _ANNOTATIONS
        and row.name.startswith(("nccl:", "gloo:"))
        and row.name not in _COMMUNICATES
    }
    if unknown:
        found.append(f"not communication for it: {', '.join(sorted(unknown))}")
    return found


def why_no_figure(facts: FileFacts) -> str | None:
    """The reason why it has no overlap, where our data tells it."""
    if not len(_counted(facts.rows).comm):
        return "there is none of the ten annotations it knows"
    return None


def _is_kernel(row: Row) -> bool:
    return (row.cat or "").lower() == "kernel"


def _communicating_ids(rows: Iterable[Row]) -> set[int | str | None]:
    return {row.external_id for row in rows if row.name in _COMMUNICATES and _is_operator(row)}


def _is_operator(row: Row) -> bool:
    return row.cat is not None and row.cat.lower() in (*_OPERATORS, *_ANNOTATIONS)


def _counted(rows: Iterable[Row]) -> Counted:
    rows = list(rows)
    ids = _communicating_ids(rows)
    kernels = [row for row in rows if _is_kernel(row)]
    operators = [row for row in rows if _is_operator(row) and not row.name.startswith((_STEP, *_LOADER))]
    comm = [row for row in kernels if row.external_id in ids]
    comm += [row for row in operators if row.name in _COMMUNICATES]
    compute = [row for row in kernels if row.external_id not in ids]
    if not compute:
        compute = [row for row in operators if row.name not in _COMMUNICATES]
    return Counted(_union(comm), _union(compute))


def _steps(rows: Iterable[Row]) -> list[Intervals]:
    """Each window on its own, since copies of one step are counted twice; without one, from first to last operator."""
    rows = list(rows)
    steps = [row for row in rows if row.name.startswith(_STEP) and row.cat in ("cpu_op", *_ANNOTATIONS)]
    if steps:
        return [_union([row]) for row in steps]
    spans = _union([row for row in rows if row.cat is not None and row.cat.lower() in _OPERATORS])
    return [np.array([[spans[0, 0], spans[-1, 1]]], dtype=np.int64)] if len(spans) else []


def _union(rows: Iterable[Row]) -> Intervals:
    """In ns; a float of microseconds since the epoch times 1000 would be no whole number, so the two parts go apart."""
    spans = np.array([(row.ts, (row.ts or 0.0) + (row.dur or 0.0)) for row in rows], dtype=np.float64)
    whole, rest = np.divmod(spans.reshape(-1, 2), 1.0)
    spans_ns = whole.astype(np.int64) * 1000 + np.round(rest * 1000).astype(np.int64)
    return iv.union(spans_ns[:, 0], spans_ns[:, 1])
