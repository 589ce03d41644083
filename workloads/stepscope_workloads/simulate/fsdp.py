"""FSDP2's part of a step: every layer is a unit whose parameters are gathered before use and whose gradients are scattered.

Gathers and scatters share the communicator's one stream. With prefetch, the next unit's gather is launched before this
unit's compute and does not wait for it; without, a gather waits for all compute launched so far.
"""

from __future__ import annotations

from stepscope_workloads.simulate.causes import FsdpPrefetchOff
from stepscope_workloads.simulate.comms import Communicator, Launched
from stepscope_workloads.simulate.job import US, Job
from stepscope_workloads.simulate.program import Builder, Exchange, exchange

_COPY_OUT = (
    "void at::native::(anonymous namespace)::split_with_sizes_copy_kernel<float>(float*, float const*)"
)
_COPY_IN = "void at::native::(anonymous namespace)::chunk_cat_cuda_kernel<float, float>(float**, float*)"


class Units:
    """The units of one step, in the order of the layers."""

    def __init__(self, builder: Builder, comms: Communicator, job: Job) -> None:
        self._b, self._comms, self._job = builder, comms, job
        self._prefetch = job.cause(FsdpPrefetchOff) is None
        self._gathered: dict[int, Launched] = {}
        self._scattered: list[Launched] = []

    def before_forward(self, unit: int) -> None:
        """Gather a unit before its forward."""
        with self._b.span(f"FSDP::pre_forward ({self._name(unit)})"):
            self._unshard(unit, unit + 1)

    def before_backward(self, unit: int) -> None:
        """Gather a unit again before its backward."""
        with self._b.span(f"FSDP::pre_backward ({self._name(unit)})"):
            self._unshard(unit, unit - 1)

    def after_backward(self, unit: int) -> None:
        """Reduce and scatter a unit's gradients."""
        with self._b.span(f"FSDP::post_backward_reshard ({self._name(unit)})"):
            pass
        with self._b.span(f"FSDP::post_backward_reduce ({self._name(unit)})"):
            with self._b.span("fsdp::chunk_cat"):
                self._b.kernel(_COPY_IN, 30 * US, bucket=len(self._scattered))
            bucket = len(self._scattered)
            self._scattered.append(self._comms.start(self._exchange("reduce_scatter", unit), bucket=bucket))

    def after_all(self) -> None:
        """The end of backward: compute waits for every scatter."""
        with self._b.span("FSDP::root_post_backward_callback"):
            self._comms.finish(self._scattered)
        self._scattered.clear()

    def _unshard(self, unit: int, following: int) -> None:
        if unit not in self._gathered:
            self._gather(unit)
        if self._prefetch and 0 <= following < len(self._job.model.layers):
            self._gather(following)
        self._comms.finish([self._gathered.pop(unit)])
        with self._b.span("FSDP::all_gather_copy_out"):
            self._b.kernel(_COPY_OUT, 30 * US)

    def _gather(self, unit: int) -> None:
        with self._b.span(f"FSDP::all_gather ({self._name(unit)})"):
            what = self._exchange("all_gather", unit)
            self._gathered[unit] = self._comms.start(what, after_compute=not self._prefetch)

    def _exchange(self, kind: str, unit: int) -> Exchange:
        layer = self._job.model.layers[unit]
        shard = -(-sum(layer.parameters) // self._job.ranks)
        whole, dtype = shard * self._job.ranks, self._job.model.dtype
        if kind == "all_gather":
            return exchange(kind, shard, whole, dtype)
        return exchange(kind, whole, shard, dtype, gradient=True)

    def _name(self, unit: int) -> str:
        return self._job.model.layers[unit].name
