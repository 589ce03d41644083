"""The program of a training step as torch runs it, under DDP or FSDP2, with the job's causes built in.

Spans carry the names that torch 2.x records, and collectives the calls that its NCCL process group makes.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from stepscope_workloads.simulate import causes
from stepscope_workloads.simulate.buckets import Buckets, Parameter, Reducer
from stepscope_workloads.simulate.comms import Communicator, Launched
from stepscope_workloads.simulate.fsdp import Units
from stepscope_workloads.simulate.job import MS, US, Job
from stepscope_workloads.simulate.program import (
    AUTOGRAD,
    BACKWARD,
    COMPUTE,
    FORWARD,
    MAIN,
    OPTIMIZER,
    Arguments,
    Builder,
    Program,
    exchange,
)

_UPDATE = "update"
"""Of a step: the optimizer, and what comes before it."""
_EVALUATE = "autograd::engine::evaluate_function: "
_ACCUMULATE = "torch::autograd::AccumulateGrad"
_COPY_GRADIENT = (
    "void at::native::vectorized_elementwise_kernel<4, at::native::AUnaryFunctor<float, float, float, "
    "at::native::binary_internal::MulFunctor<float> >, std::array<char*, 2ul> >(int)"
)
_FOREACH = "void at::native::(anonymous namespace)::multi_tensor_apply_kernel"
_LOSS = "void at::native::(anonymous namespace)::nll_loss"
_BATCH_BYTES = 8 * 1024 * 1024
_COPY_BYTES_PER_NS = 1000
"""A gradient's copy into its bucket: reading and writing at 2 TB/s."""


def programs_of(job: Job) -> list[Program]:
    """One program a rank; ranks to which nothing special happens share theirs."""
    _check(job)
    special = {one.rank for one in job.all_of(causes.Straggler)} | {
        one.rank for one in job.all_of(causes.InputSkew)
    }
    plain = _Writer(job, None).program()
    return [_Writer(job, rank).program() if rank in special else plain for rank in range(job.ranks)]


def _check(job: Job) -> None:
    if job.ranks < 1 or job.steps < 1 or not job.model.layers:
        raise ValueError("a job needs at least one rank, one step and one layer")
    if job.sharding not in ("ddp", "fsdp"):
        raise ValueError(f"sharding is ddp or fsdp, not {job.sharding!r}")
    if job.sharding == "fsdp" and job.cause(causes.Contention):
        raise ValueError("contention is simulated for ddp only: prefetched gathers do not wait for compute")


class _Writer:
    """Writes one rank's program; rank None is any rank to which nothing special happens."""

    def __init__(self, job: Job, rank: int | None) -> None:
        self._job, self._rank = job, rank
        self._b = Builder(job.operator, job.host.launch)
        self._comms = Communicator(self._b, job)
        self._buckets = Buckets.of(job)
        self._units = Units(self._b, self._comms, job)
        self._fsdp = job.sharding == "fsdp"
        self._sync_bn = job.cause(causes.SyncBatchNorm)
        self._extra = {phase: self._slower_by(phase) for phase in (FORWARD, BACKWARD, _UPDATE)}

    def program(self) -> Program:
        """All steps, and the synchronise with which the profiler stops."""
        for step in range(self._job.first_step, self._job.first_step + self._job.steps):
            self._b.step = step
            mark = self._b.span(f"ProfilerStep#{step}", "user_annotation", 2 * US)
            with mark, self._frame("train.py(41): train_step"):
                self._step()
        self._b.synchronize_device()
        return self._b.program

    def _step(self) -> None:
        self._data()
        with self._b.span("Optimizer.zero_grad#AdamW.zero_grad", "user_annotation", 20 * US):
            pass
        self._forward()
        self._between()
        with self._b.on(AUTOGRAD, BACKWARD):
            self._backward()
        if self._job.clips or self._job.cause(causes.GradClipSync):
            self._clip()
        self._straggle(_UPDATE)
        with (
            self._b.on(MAIN, OPTIMIZER),
            self._b.span("Optimizer.step#AdamW.step", "user_annotation"),
            self._b.span("aten::_fused_adamw_"),
        ):
            self._b.kernel(_FOREACH, self._job.model.optimizer + self._extra[_UPDATE])
        if self._job.host.reads_loss:
            self._read("train.py(58): log_loss")

    def _data(self) -> None:
        skew = sum(one.ms for one in self._job.all_of(causes.InputSkew) if one.rank == self._rank)
        name = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"
        with self._b.span(name, "user_annotation", self._job.host.data + round(skew * MS)):
            pass
        pageable = self._job.cause(causes.PageableCopy)
        with self._b.span("aten::to"), self._b.span("aten::_to_copy"), self._b.span("aten::copy_"):
            if pageable is None:
                self._b.copy("HtoD (Pinned -> Device)", _BATCH_BYTES // 25, _BATCH_BYTES)
            else:
                work = round(pageable.ms * MS)
                self._b.copy("HtoD (Pageable -> Device)", work, _BATCH_BYTES, blocking=True)

    def _forward(self) -> None:
        with self._b.span("DistributedDataParallel.forward", "user_annotation", 10 * US):
            self._broadcast_buffers()
            self._straggle(FORWARD)
            for number, layer in enumerate(self._job.model.layers):
                self._b.busy(self._job.host.python)
                if self._fsdp:
                    self._units.before_forward(number)
                for k, work in enumerate(layer.forward):
                    with self._b.span("aten::addmm"):
                        self._b.kernel("ampere_sgemm_128x64_tn", work + self._extra[FORWARD])
                    if not k:
                        self._synchronise_norm(number, "all_gather")
                if number in self._reading_layers("forward"):
                    self._read("model.py(112): check_activations")
        with self._b.span("aten::cross_entropy_loss"), self._b.span("aten::nll_loss_forward"):
            self._b.kernel(f"{_LOSS}_forward_reduce_cuda_kernel_2d", self._job.model.loss)

    def _broadcast_buffers(self) -> None:
        buffers = self._job.cause(causes.ForwardBroadcast)
        for _ in range(buffers.count if buffers else 0):
            assert buffers is not None
            self._comms.run(exchange("broadcast", buffers.elements, buffers.elements))

    def _synchronise_norm(self, number: int, kind: str) -> None:
        if self._sync_bn is None or number >= self._sync_bn.layers:
            return
        elements = 2 * self._sync_bn.channels + 1
        out = elements * self._job.ranks if kind == "all_gather" else elements
        self._comms.run(exchange(kind, elements, out))

    def _between(self) -> None:
        metrics = self._job.cause(causes.MetricReduce)
        for _ in range(metrics.count if metrics else 0):
            self._comms.run(exchange("all_reduce", 1, 1))
        reads = self._job.cause(causes.HostSync)
        for _ in range(reads.times if reads and reads.where == "between" else 0):
            self._read("train.py(47): check_loss")

    def _backward(self) -> None:
        reducer, started = Reducer(self._buckets), list[Launched]()
        self._straggle(BACKWARD)
        with self._b.span(f"{_EVALUATE}NllLossBackward0"), self._b.span("aten::nll_loss_backward"):
            self._b.kernel(f"{_LOSS}_backward_reduce_cuda_kernel_2d", self._job.model.loss)
        for number in reversed(range(len(self._job.model.layers))):
            self._layer_backward(number)
            for k in reversed(range(len(self._job.model.layers[number].parameters))):
                if not self._fsdp and (number, k) != self._buckets.late:
                    self._accumulate((number, k), reducer, started)
        if not self._fsdp and self._buckets.late:
            self._accumulate(self._buckets.late, reducer, started)
        if self._fsdp:
            self._units.after_all()
        else:
            self._comms.finish(started)

    def _layer_backward(self, number: int) -> None:
        layer = self._job.model.layers[number]
        with self._b.span(f"{_EVALUATE}AddmmBackward0"):
            if self._fsdp:
                self._units.before_backward(number)
            for k, work in enumerate(layer.backward):
                with self._b.span("AddmmBackward0"), self._b.span("aten::mm"):
                    self._b.kernel("ampere_sgemm_128x64_nt", work + self._extra[BACKWARD])
                if not k:
                    self._synchronise_norm(number, "all_reduce")
            if number in self._reading_layers("backward"):
                self._read("train.py(52): gradient_hook")
        if self._fsdp:
            with self._b.span(f"{_EVALUATE}RegisterPostBackwardFunctionBackward"):
                self._units.after_backward(number)

    def _accumulate(self, parameter: Parameter, reducer: Reducer, started: list[Launched]) -> None:
        elements = self._job.model.layers[parameter[0]].parameters[parameter[1]]
        shape: Arguments = {"Input Dims": [[elements]], "Input type": ["float"]}
        with self._b.span(_EVALUATE + _ACCUMULATE):
            with self._b.span(_ACCUMULATE, args=shape):
                pass
            with self._b.span("torch::distributed::reducer::mul_out", args=shape), self._b.span("aten::mul"):
                work = 2 * US + 4 * elements // _COPY_BYTES_PER_NS
                self._b.kernel(_COPY_GRADIENT, work, bucket=self._buckets.number[parameter])
            for bucket in reducer.arrived(parameter):
                size = self._buckets.elements[bucket]
                what = exchange("all_reduce", size, size, self._job.model.dtype, gradient=True)
                started.append(self._comms.start(what, bucket=bucket))
                if self._job.cause(causes.WaitEdge):
                    self._comms.finish(started[-1:])

    def _clip(self) -> None:
        with self._frame("torch/nn/utils/clip_grad.py(45): clip_grad_norm_"):
            with self._b.span("aten::_foreach_norm"):
                self._b.kernel("void at::native::lpnorm_cleanup", 80 * US)
            if self._job.cause(causes.GradClipSync):
                self._read("train.py(55): log_norm")
            with self._b.span("aten::_foreach_mul_"):
                self._b.kernel(_FOREACH, 80 * US)

    def _read(self, line: str) -> None:
        """`.item()` of a tensor on the device, at a line of a script."""
        built_in = self._frame("<built-in method item of Tensor object at 0x7f0000000000>")
        item = self._b.span("aten::item"), self._b.span("aten::_local_scalar_dense")
        with self._frame(line), built_in, item[0], item[1]:
            self._b.copy("DtoH (Device -> Pageable)", 2 * US, 4)
            self._b.synchronize(COMPUTE)

    @contextmanager
    def _frame(self, name: str) -> Iterator[None]:
        """A Python frame, where stacks are recorded."""
        if not self._job.with_stack:
            yield
            return
        with self._b.span(name, "python_function", 0):
            yield

    def _reading_layers(self, where: str) -> frozenset[int]:
        """The layers after which the host reads, spread evenly."""
        reads, layers = self._job.cause(causes.HostSync), len(self._job.model.layers)
        if reads is None or reads.where != where:
            return frozenset()
        return frozenset(layers * (2 * k + 1) // (2 * reads.times) for k in range(min(reads.times, layers)))

    def _straggle(self, phase: str) -> None:
        for one in self._job.all_of(causes.Straggler):
            if (one.rank, one.phase, one.by) == (self._rank, phase, "host"):
                self._b.busy(round(one.ms * MS))

    def _slower_by(self, phase: str) -> int:
        """How much longer each kernel of a phase takes on this rank."""
        layers = self._job.model.layers
        kernels = 1 if phase == _UPDATE else sum(len(getattr(layer, phase)) for layer in layers)
        late = [
            one for one in self._job.all_of(causes.Straggler) if (one.rank, one.phase) == (self._rank, phase)
        ]
        return sum(round(one.ms * MS / kernels) for one in late if one.by == "compute")
