"""From columns to a recording: which activities compute, which communicate, in what phase and step, and for what."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from stepscope.trace import collectives, gloo, host, roles
from stepscope.trace.columns import NO_ID, Category, CommArguments, Trace
from stepscope.trace.launches import HostContext, Launches, device_launches
from stepscope.trace.recording import NO_TIME, CollectiveOp, GradientCopy, Phase, Recording, Work
from stepscope.trace.roles import Circumstances
from stepscope.trace.steps import Steps, find_steps

_DEVICE = (Category.KERNEL, Category.MEMCPY, Category.MEMSET)


@dataclass(frozen=True, slots=True)
class _Split:
    """Rows of the activities that compute and of those that communicate, with their launches."""

    compute: NDArray[np.int64]
    compute_launches: Launches
    comm: NDArray[np.int64]
    comm_launches: Launches
    launch_rows: NDArray[np.int64]
    """For each collective, the row of the communication operator that launched it, or NO_ROW."""


def classify(trace: Trace) -> Recording:
    """Classify every activity of one file (METRICS, section 1)."""
    context = HostContext(trace)
    device = _device_of(trace)
    split = _split_cpu(trace) if device == "cpu" else _split_device(trace, context)
    steps = find_steps(trace)
    sizes = _copied_elements(trace, context)
    return Recording(
        source=trace.source,
        header=trace.header,
        base_ns=trace.base_ns,
        device=device,
        steps=steps,
        compute=_work(trace, split, context, steps),
        collectives=_collectives(trace, split, context, steps, sizes),
        copies=_copies(trace, split, context, steps, sizes),
        **_busy(trace, split, device),
        communication_operators=len(host.select(trace, host.is_communication)),
        unknown_phase=int((~split.compute_launches.known).sum() + (~split.comm_launches.known).sum()),
        truncated=trace.truncated,
        warnings=(*trace.warnings, *steps.warnings),
        trace=trace,
    )


def _device_of(trace: Trace) -> str:
    events = trace.events
    if events.among(_DEVICE).any():
        calls = events.category == Category.RUNTIME
        hip = any(trace.names[name].startswith("hip") for name in np.unique(events.name[calls]))
        return "rocm" if hip else "cuda"
    return (
        "cpu"
        if len(host.select(trace, lambda name: gloo.is_compute(name) or collectives.is_gloo_span(name)))
        else "none"
    )


def _busy(trace: Trace, split: _Split, device: str) -> dict[str, NDArray[np.int64]]:
    events = trace.events
    rows = split.compute if device == "cpu" else np.flatnonzero(events.among(_DEVICE))
    return {"busy_start": events.start[rows], "busy_end": events.end[rows]}


def _split_device(trace: Trace, context: HostContext) -> _Split:
    events = trace.events
    kernels = np.flatnonzero(events.among((Category.KERNEL, Category.MEMCPY)))
    launches = device_launches(trace, kernels)
    named = np.array([collectives.match_kernel(name) is not None for name in trace.names], dtype=np.bool_)
    carries_name = np.isin(kernels, np.fromiter(trace.comm_arguments, dtype=np.int64))
    is_kernel = events.category[kernels] == Category.KERNEL
    comm = context.communicates(launches) & (is_kernel | _between_devices(trace, kernels))
    comm |= is_kernel & (named[events.name[kernels]] | carries_name)
    compute = is_kernel & ~comm
    comm_launches = Launches(launches.thread[comm], launches.time[comm])
    return _Split(
        compute=kernels[compute],
        compute_launches=Launches(launches.thread[compute], launches.time[compute]),
        comm=kernels[comm],
        comm_launches=comm_launches,
        launch_rows=context.named.holding(comm_launches.thread, comm_launches.time),
    )


def _between_devices(trace: Trace, rows: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Copies from device to device: the copy engine's way to communicate."""
    named = np.array(
        ["DtoD" in name or "PtoP" in name or "Peer" in name for name in trace.names], dtype=np.bool_
    )
    is_copy = trace.events.category[rows] == Category.MEMCPY
    between: NDArray[np.bool_] = is_copy & named[trace.events.name[rows]]
    return between


def _split_cpu(trace: Trace) -> _Split:
    spans = gloo.spans(trace)
    operators = gloo.launch_rows(trace, spans)
    compute = gloo.compute_rows(trace, spans)
    threads, start = trace.events.thread, trace.events.start
    launched = operators != host.NO_ROW
    return _Split(
        compute=compute,
        compute_launches=Launches(threads[compute], start[compute]),
        comm=spans,
        comm_launches=Launches(
            np.where(launched, threads[operators], 0), np.where(launched, start[operators], NO_TIME)
        ),
        launch_rows=operators,
    )


def _work(trace: Trace, split: _Split, context: HostContext, steps: Steps) -> Work:
    rows, launches = split.compute, split.compute_launches
    order = np.argsort(trace.events.start[rows], kind="stable")
    return Work(
        start=trace.events.start[rows][order],
        end=trace.events.end[rows][order],
        launch=launches.time[order],
        phase=context.phases(launches)[order],
        step=steps.of(launches.time)[order],
    )


def _copies(
    trace: Trace, split: _Split, context: HostContext, steps: Steps, sizes: dict[int, int]
) -> tuple[GradientCopy, ...]:
    """What computed inside `AccumulateGrad`'s nodes, one entry a node: the gradient's way into its bucket."""
    launches = split.compute_launches
    node = context.accumulate.holding(launches.thread, launches.time)
    inside = np.flatnonzero((node != host.NO_ROW) & launches.known)
    rows, at = np.unique(node[inside], return_inverse=True)
    end, launch = np.full(len(rows), NO_TIME), np.full(len(rows), NO_TIME)
    np.maximum.at(end, at, trace.events.end[split.compute[inside]])
    np.maximum.at(launch, at, launches.time[inside])
    found = zip(
        launch.tolist(), end.tolist(), steps.of(launch).tolist(), map(sizes.get, rows.tolist()), strict=True
    )
    return tuple(sorted((GradientCopy(*one) for one in found), key=lambda copy: copy.launch))


def _copied_elements(trace: Trace, context: HostContext) -> dict[int, int]:
    """Elements of the gradient that each `AccumulateGrad` node handled, from the shapes of its own operator."""
    rows = np.array([row for row in trace.shapes if _is_accumulate_op(trace, row)], dtype=np.int64)
    if not len(rows):
        return {}
    node = context.accumulate.holding(trace.events.thread[rows], trace.events.start[rows])
    sizes = {}
    for row, holder in zip(rows, node, strict=True):
        elements = gloo.total_elements(trace.shapes[int(row)])
        if holder != host.NO_ROW and elements is not None:
            sizes[int(holder)] = elements
    return sizes


def _is_accumulate_op(trace: Trace, row: int) -> bool:
    return _name_of(trace, row) == "torch::autograd::AccumulateGrad"


def _collectives(
    trace: Trace, split: _Split, context: HostContext, steps: Steps, sizes: dict[int, int]
) -> tuple[CollectiveOp, ...]:
    launches = split.comm_launches
    phases, numbers = context.phases(launches), steps.of(launches.time)
    params = context.param_comms.holding(launches.thread, launches.time)
    annotations = context.annotated.holding(launches.thread, launches.time)
    plain = [
        _describe(trace, int(split.comm[k]), int(split.launch_rows[k]), int(annotations[k]), int(params[k]))
        for k in range(len(split.comm))
    ]
    placed = [
        replace(op, launch=int(launches.time[k]), phase=Phase(phases[k]), step=int(numbers[k]))
        for k, op in enumerate(plain)
    ]
    return tuple(
        sorted(
            _with_roles(trace, placed, launches, context, steps, frozenset(sizes.values())),
            key=lambda op: op.start,
        )
    )


def _describe(trace: Trace, row: int, operator: int, annotation: int, params: int) -> CollectiveOp:
    """A collective by itself: its kind, size, type and group from its args, its launching operator or its name."""
    events = trace.events
    name = trace.names[events.name[row]]
    args = trace.comm_arguments.get(row) or trace.comm_arguments.get(params) or CommArguments()
    kinds = (
        collectives.kind_of(args.collective),
        collectives.operator_kind(trace.names[events.name[operator]]) if operator != host.NO_ROW else None,
        collectives.operator_kind(name),
        (collectives.match_kernel(name) or collectives.KernelMatch("", collectives.UNKNOWN)).kind,
    )
    dtype = (
        collectives.dtype_of(args.dtype)
        or _shape_dtype(trace, (row, operator, annotation))
        or collectives.kernel_dtype(name)
    )
    stream = int(events.stream[row])
    return CollectiveOp(
        row=row,
        kind=next((kind for kind in kinds if kind and kind != collectives.UNKNOWN), collectives.UNKNOWN),
        role=roles.OTHER,
        name=name,
        start=int(events.start[row]),
        end=int(events.end[row]),
        launch=NO_TIME,
        phase=Phase.UNKNOWN,
        stream=stream if stream != NO_ID else None,
        elements=_elements_of(trace, args, operator, (row, annotation)),
        dtype=dtype,
        group=args.group_name,
        group_size=args.group_size or (len(args.group_ranks) if args.group_ranks else None),
        sequence=args.sequence,
    )


def _elements_of(trace: Trace, args: CommArguments, operator: int, transfers: tuple[int, ...]) -> int | None:
    """The larger of input and output: declared, or from the shapes of the operator and of what it transfers."""
    declared = [count for count in (args.elements_in, args.elements_out) if count is not None]
    if declared:
        return max(declared)
    sizes = gloo.arguments_elements(trace.shapes.get(operator))
    totals = (gloo.total_elements(trace.shapes.get(row)) for row in transfers)
    return max([*sizes, *(total for total in totals if total is not None)], default=None)


def _shape_dtype(trace: Trace, rows: tuple[int, ...]) -> collectives.Dtype | None:
    for row in rows:
        shapes = trace.shapes.get(row)
        for spelling in shapes.types if shapes else ():
            if dtype := collectives.dtype_of(spelling):
                return dtype
    return None


def _with_roles(
    trace: Trace,
    ops: list[CollectiveOp],
    launches: Launches,
    context: HostContext,
    steps: Steps,
    gradient_sizes: frozenset[int],
) -> list[CollectiveOp]:
    first_node, last_node = _backward(trace, steps)
    held = {
        name: getattr(context, name).holding(launches.thread, launches.time)
        for name in ("evaluate", "accumulate", "ddp_forward", "fsdp_reduce", "fsdp_gather")
    }
    world = trace.header.world_size
    circumstances = [
        Circumstances(
            kind=op.kind,
            phase=op.phase,
            elements=op.elements,
            dtype=op.dtype,
            in_accumulate_grad=held["accumulate"][k] != host.NO_ROW,
            in_backward_node=held["evaluate"][k] != host.NO_ROW,
            in_ddp_forward=held["ddp_forward"][k] != host.NO_ROW,
            in_fsdp_reduce=held["fsdp_reduce"][k] != host.NO_ROW,
            in_fsdp_gather=held["fsdp_gather"][k] != host.NO_ROW,
            whole_group=op.group_size in (None, world),
            ranks=op.group_size or world,
            compiled=host.is_compiled_backward(_name_of(trace, int(held["evaluate"][k]))),
            after_backward=op.phase == Phase.FORWARD and op.launch > last_node.get(op.step, math.inf),
            after_micro_batch=op.phase == Phase.FORWARD and op.launch > first_node.get(op.step, math.inf),
        )
        for k, op in enumerate(ops)
    ]
    reducing = {op.step for op, c in zip(ops, circumstances, strict=True) if roles.is_reducer_traffic(c)}
    marked = any(host.is_ddp_forward(name) or host.is_fsdp_reduce(name) for name in trace.names)
    zero = roles.is_zero(circumstances, marked=marked)
    return [
        replace(op, role=roles.role_of(c, op.step in reducing, gradient_sizes, zero=zero))
        for op, c in zip(ops, circumstances, strict=True)
    ]


def _name_of(trace: Trace, row: int) -> str:
    return "" if row == host.NO_ROW else trace.names[trace.events.name[row]]


def _backward(trace: Trace, steps: Steps) -> tuple[dict[int, int], dict[int, int]]:
    """For each step, when its first and when its last node of backward began on the host."""
    start = trace.events.start[host.select(trace, host.is_evaluate_function)]
    numbers, at = np.unique(steps.of(start), return_inverse=True)
    first, last = np.full(len(numbers), np.iinfo(np.int64).max), np.full(len(numbers), NO_TIME)
    np.minimum.at(first, at, start)
    np.maximum.at(last, at, start)
    return dict(zip(numbers.tolist(), first.tolist(), strict=True)), dict(
        zip(numbers.tolist(), last.tolist(), strict=True)
    )
