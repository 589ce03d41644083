"""What a collective carries: gradients, parameters, buffers, DDP's own bookkeeping, metrics.

Only gradients count for the headline figure (METRICS: gradient collective). A reduction is gradient traffic when the DDP
reducer launched it (inside `AccumulateGrad`'s node), when FSDP's post-backward did, or when the script reduced by hand
after backward something of a gradient's size; anything else is named and reported beside it. ZeRO as DeepSpeed does it leaves
no mark of its own in a trace: `is_zero` tells it by what it sends.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from stepscope.trace import collectives
from stepscope.trace.collectives import Dtype
from stepscope.trace.recording import Phase

GRADIENT = "gradient"
PARAMETER = "parameter"
BUFFER = "buffer"
REBUILD = "bucket-rebuild"
UNUSED_MAP = "unused-parameter-map"
ACTIVATION = "activation"
METRIC = "metric"
BARRIER = "barrier"
OTHER = "other"

METRIC_ELEMENTS = 1024
"""A reduction of at most so many elements, outside the reducer, is taken for a metric or a flag."""


@dataclass(frozen=True, slots=True)
class Circumstances:
    """What is known of one collective when its role is decided."""

    kind: str
    phase: Phase
    elements: int | None
    dtype: Dtype | None
    in_accumulate_grad: bool
    in_backward_node: bool
    in_ddp_forward: bool
    in_fsdp_reduce: bool
    in_fsdp_gather: bool
    whole_group: bool
    """Its group is every rank of the run, as far as is known."""
    ranks: int | None
    """Of its group, as far as is known."""
    compiled: bool
    """Launched by a compiled backward's own node."""
    after_backward: bool
    """Launched outside backward, after the last node of its step's backward and before the step ends."""
    after_micro_batch: bool
    """Launched outside backward, after some node of its step's backward: with accumulation, before the next forward too."""


def role_of(c: Circumstances, reducer_in_step: bool, gradient_sizes: frozenset[int], *, zero: bool) -> str:
    """The role of one collective.

    reducer_in_step: the step has gradient traffic of the reducer's or FSDP's own; then a reduction by hand is none.
    gradient_sizes: element counts of the gradients that backward produced; empty where shapes were not recorded.
    zero: the job is ZeRO's, see `is_zero`; then gradients left when a backward is over are reduced after it, and what the
    whole group gathers are parameters.
    """
    if c.kind == "barrier":
        return BARRIER
    if c.phase == Phase.UNKNOWN:
        return OTHER
    if c.kind in collectives.REDUCES:
        return _reduction(c, reducer_in_step, gradient_sizes, zero=zero)
    if c.kind == "broadcast":
        return _broadcast(c)
    if c.in_fsdp_gather:
        return PARAMETER
    if c.kind == "all_gather":
        return _gather(c, zero=zero)
    if c.kind in ("all_to_all", "send_recv") and c.phase in (Phase.FORWARD, Phase.BACKWARD):
        return ACTIVATION
    return OTHER


def is_reducer_traffic(c: Circumstances) -> bool:
    """Launched by DDP's reducer, by FSDP's post-backward or by a compiled backward over the whole group."""
    if c.kind not in collectives.REDUCES or (c.dtype is not None and not c.dtype.floating):
        return False
    return c.in_accumulate_grad or c.in_fsdp_reduce or (c.compiled and c.whole_group)


def is_zero(circumstances: Sequence[Circumstances], *, marked: bool) -> bool:
    """Whether hooks or the script reduce large gradients and large parameters are gathered, outside backward too.

    marked: the trace has DDP's or FSDP's own marks, whose hooks and gathers these are.
    """
    reduces = any(
        c.kind in collectives.REDUCES and (c.in_accumulate_grad or c.after_micro_batch) and _is_large(c)
        for c in circumstances
    )
    gathers = any(c.kind == "all_gather" and not c.in_backward_node and _is_large(c) for c in circumstances)
    return reduces and gathers and not marked


def _is_large(c: Circumstances) -> bool:
    """What a whole group sends that is no metric: gradients or parameters, where it is ZeRO's."""
    return _is_of_model(c) and c.elements is not None and c.elements > METRIC_ELEMENTS


def _is_of_model(c: Circumstances) -> bool:
    """What the whole group sends, of a type that gradients and parameters have."""
    return c.whole_group and (c.dtype is None or c.dtype.floating)


def _is_left_of_zeros(c: Circumstances, gradient_sizes: frozenset[int]) -> bool:
    """Gradients that filled no bucket in backward: nobody scatters metrics, and few are as large as a gradient."""
    is_gradient = c.kind == "reduce_scatter" or _is_large(c) or c.elements in gradient_sizes - {1}
    return c.after_micro_batch and _is_of_model(c) and is_gradient


def _reduction(c: Circumstances, reducer_in_step: bool, gradient_sizes: frozenset[int], *, zero: bool) -> str:
    if c.dtype is not None and not c.dtype.floating:
        return UNUSED_MAP if c.in_backward_node or c.after_backward else METRIC
    if is_reducer_traffic(c) or (zero and _is_left_of_zeros(c, gradient_sizes)):
        return GRADIENT
    if c.in_backward_node:
        return ACTIVATION
    if c.after_backward and not reducer_in_step and _gradient_sized(c.elements, gradient_sizes):
        return GRADIENT
    return METRIC if c.elements is not None and c.elements <= METRIC_ELEMENTS else OTHER


def _gather(c: Circumstances, *, zero: bool) -> str:
    if c.phase == Phase.OPTIMIZER:
        return PARAMETER
    if zero and _is_of_model(c):
        return METRIC if _is_one_number_a_rank(c) else PARAMETER
    if _is_count(c):
        return METRIC
    return ACTIVATION if c.phase in (Phase.FORWARD, Phase.BACKWARD) else OTHER


def _is_one_number_a_rank(c: Circumstances) -> bool:
    """Such as its loss; a parameter that ZeRO 3 has split is seldom so small."""
    return c.elements is not None and c.elements <= (c.ranks or 1)


def _is_count(c: Circumstances) -> bool:
    """A few integers, such as each rank's number of tokens."""
    counts = c.dtype is not None and not c.dtype.floating
    return counts and c.elements is not None and c.elements <= METRIC_ELEMENTS


def _gradient_sized(elements: int | None, gradient_sizes: frozenset[int]) -> bool:
    """Whether a reduction by hand is as large as one gradient or as several in one flat tensor; unknown is no."""
    if elements is None:
        return False
    if gradient_sizes:
        return elements in gradient_sizes - {1} or elements >= max(gradient_sizes)
    return elements > METRIC_ELEMENTS


def _broadcast(c: Circumstances) -> str:
    if c.phase == Phase.OPTIMIZER:
        return PARAMETER
    if c.in_ddp_forward:
        # DDP agrees on new buckets in int32; buffers are floating, or int64 (BatchNorm's num_batches_tracked).
        return REBUILD if c.dtype is not None and c.dtype.name == "int32" else BUFFER
    return OTHER
