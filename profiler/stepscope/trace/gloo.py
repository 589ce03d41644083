"""CPU runs: gloo's spans are the collectives, operators on the training threads are the compute.

A gloo span (`gloo:all_reduce`) is the worker thread's execution; what launched it is the `c10d::*` operator on a training
thread, which also tells the truth where gloo runs one kind as another (a reduce-scatter as an all-reduce).
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from stepscope.trace import collectives, host
from stepscope.trace.columns import Category, Shapes, Trace

_NAMESPACED = re.compile(r"[A-Za-z_][\w.]*::\S+")
_NOT_COMPUTE = ("autograd::", "torch::autograd::", "torch::jit::", "torch::dynamo", "profiler::")
_COMPILED_KERNEL = "## Call CompiledFxGraph"


def is_compute(name: str) -> bool:
    """An operator's own work: `aten::*`, DDP's gradient copies, compiled graphs; no wrapper of the engine's."""
    if name.startswith(_COMPILED_KERNEL):
        return True
    if _NAMESPACED.fullmatch(name) is None or name.startswith(_NOT_COMPUTE):
        return False
    return collectives.operator_kind(name) is None and not name.endswith(("::wait_tensor", "::wait"))


def spans(trace: Trace) -> NDArray[np.int64]:
    """Rows of gloo's spans, by start."""
    rows = host.select(trace, collectives.is_gloo_span)
    return rows[np.argsort(trace.events.start[rows], kind="stable")]


def compute_rows(trace: Trace, gloo_rows: NDArray[np.int64]) -> NDArray[np.int64]:
    """Rows of the operators that compute, on every thread but gloo's own."""
    threads = trace.events.thread
    workers = set(threads[gloo_rows].tolist())
    rows = host.select(trace, is_compute)
    return rows[~np.isin(threads[rows], list(workers))] if workers else rows


def launch_rows(trace: Trace, gloo_rows: NDArray[np.int64]) -> NDArray[np.int64]:
    """For each span, the row of the `c10d::*` operator that launched it, or NO_ROW.

    Gloo takes work from one queue, so spans start in launch order: each takes the earliest operator before it that fits
    in kind and size and is not taken yet.
    """
    operators = _launching_operators(trace)
    waiting = list(operators)
    found = np.full(len(gloo_rows), host.NO_ROW, dtype=np.int64)
    start = trace.events.start
    for k, span in enumerate(gloo_rows):
        for place, operator in enumerate(waiting):
            if start[operator] > start[span]:
                break
            if _fits(trace, int(operator), int(span)):
                found[k] = waiting.pop(place)
                break
    return found


def _launching_operators(trace: Trace) -> NDArray[np.int64]:
    named = host.select(trace, host.is_communication)
    cpu = named[trace.events.category[named] == Category.CPU_OP]
    rows = np.array(
        [row for row in cpu if trace.names[trace.events.name[row]].startswith("c10d::")], dtype=np.int64
    )
    return rows[np.argsort(trace.events.start[rows], kind="stable")]


_RUN_AS = {
    ("reduce_scatter", "all_reduce"),
    ("all_to_all", "send_recv"),
    ("all_gather", "broadcast"),
    ("barrier", "all_reduce"),
}
"""Kinds that gloo runs as another: (what was asked for, what the span says)."""


def _fits(trace: Trace, operator: int, span: int) -> bool:
    asked = collectives.operator_kind(trace.names[trace.events.name[operator]])
    ran = collectives.operator_kind(trace.names[trace.events.name[span]])
    if asked != ran and (asked, ran) not in _RUN_AS:
        return False
    sizes = arguments_elements(trace.shapes.get(operator))
    size = total_elements(trace.shapes.get(span))
    return not sizes or size is None or size in sizes


def _leaf_shapes(dims: object) -> Iterable[list[int]]:
    """The tensor shapes in nested `Input Dims`: [2, 3] is one tensor, [[2, 3], [4]] a list of two, [] none or a scalar."""
    if not isinstance(dims, list) or not dims:
        return
    if all(isinstance(size, int) for size in dims):
        yield dims
        return
    for inner in dims:
        yield from _leaf_shapes(inner)


def _elements(dims: object) -> int:
    return sum(math.prod(shape) for shape in _leaf_shapes(dims))


def arguments_elements(shapes: Shapes | None) -> list[int]:
    """Elements of each tensor or tensor-list argument of an operator; arguments without a shape are left out."""
    if shapes is None:
        return []
    return [count for count in map(_elements, shapes.dims) if count]


def total_elements(shapes: Shapes | None) -> int | None:
    """Elements of all tensors of a span, None where its shapes were not recorded. A shape of [] is one element."""
    if shapes is None or not shapes.dims:
        return None
    return sum(1 if dims == [] else _elements(dims) for dims in shapes.dims)
