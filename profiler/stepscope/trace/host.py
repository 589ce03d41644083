"""What the host was doing when it launched something: spans by thread, and the names that mark them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from stepscope.trace import collectives
from stepscope.trace.columns import Trace

NO_ROW = -1
"""Where no event is meant."""


def is_evaluate_function(name: str) -> bool:
    """The autograd engine running one node: what backward means here, compiled and recomputed work included."""
    return name.startswith("autograd::engine::evaluate_function") or is_compiled_autograd(name)


def is_compiled_autograd(name: str) -> bool:
    """The whole of backward as one graph, without the engine's nodes: its compile ids begin with "!" (torch._guards)."""
    return name.startswith("Torch-Compiled Region: !")


def is_compiled_backward(name: str) -> bool:
    """A backward that was compiled, by itself or with its collectives."""
    return "CompiledFunction" in name or is_compiled_autograd(name)


def is_backward(name: str) -> bool:
    """The engine at work: one of its nodes, or FSDP2's callback behind the last one, which reduces units without a node."""
    return is_evaluate_function(name) or name.startswith("FSDP::root_post_backward_callback")


def is_accumulate_grad(name: str) -> bool:
    """The autograd engine finishing a parameter's gradient: where the DDP reducer's hooks run."""
    return is_evaluate_function(name) and name.endswith("AccumulateGrad")


def is_optimizer_step(name: str) -> bool:
    """An optimizer's step, as torch.optim annotates it."""
    return name.startswith("Optimizer.step")


def is_ddp_forward(name: str) -> bool:
    """DDP's forward: where it broadcasts buffers and agrees on new buckets."""
    return name == "DistributedDataParallel.forward"


def is_fsdp_reduce(name: str) -> bool:
    """FSDP2 and FSDP1 reducing the gradients of one unit."""
    return name.startswith(("FSDP::post_backward_reduce", "FullyShardedDataParallel._post_backward_hook"))


def is_fsdp_gather(name: str) -> bool:
    """FSDP2 and FSDP1 gathering the parameters of one unit."""
    return name.startswith(
        (
            "FSDP::all_gather",
            "FullyShardedDataParallel._pre_forward",
            "FullyShardedDataParallel._pre_backward_hook",
            "FullyShardedDataParallel._post_backward_prefetch",
        )
    )


def is_communication(name: str) -> bool:
    """An operator or annotation that launches a collective; gloo's own spans are the transfer, not the launch."""
    return collectives.operator_kind(name) is not None and not collectives.is_gloo_span(name)


def select(trace: Trace, wanted: Callable[[str], bool]) -> NDArray[np.int64]:
    """Rows of the operators and annotations whose name is wanted, in the order of the file."""
    return trace.events.on_host_named([number for number, name in enumerate(trace.names) if wanted(name)])


class HostSpans:
    """The outermost of some rows' spans on every thread; outermost spans of a thread do not overlap."""

    def __init__(self, trace: Trace, rows: NDArray[np.int64]) -> None:
        thread = trace.events.thread[rows]
        start, end = trace.events.start[rows], trace.events.end[rows]
        self._threads: dict[int, tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]] = {}
        for one in np.unique(thread):
            mine = thread == one
            self._threads[int(one)] = _outermost(rows[mine], start[mine], end[mine])

    def holding(self, thread: NDArray[np.int64], time: NDArray[np.int64]) -> NDArray[np.int64]:
        """For each (thread, time), the row of the outermost span that holds it, or NO_ROW."""
        held = np.full(len(time), NO_ROW, dtype=np.int64)
        for one, (start, end, rows) in self._threads.items():
            mine = np.flatnonzero(thread == one)
            index = np.searchsorted(start, time[mine], side="right") - 1
            inside = (index >= 0) & (time[mine] < end[np.maximum(index, 0)])
            held[mine[inside]] = rows[index[inside]]
        return held


def _outermost(
    rows: NDArray[np.int64], start: NDArray[np.int64], end: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    order = np.lexsort((-end, start))
    rows, start, end = rows[order], start[order], end[order]
    reach = np.maximum.accumulate(end)
    outer = np.concatenate(([True], end[1:] > reach[:-1]))
    return start[outer], end[outer], rows[outer]
