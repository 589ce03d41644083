"""Writes an execution down as the document that torch's profiler (Kineto) makes of one rank.

Timestamps are microseconds with three decimals on the rank's own host clock. Names, categories and args are those of real
traces; figures that nothing is derived from (registers, grids) are plausible constants.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from stepscope_workloads.simulate.engine import Execution
from stepscope_workloads.simulate.job import Job
from stepscope_workloads.simulate.program import (
    AUTOGRAD,
    COLLECTIVE,
    COMM,
    COMPUTE,
    KERNEL,
    MAIN,
    Begin,
    Call,
    End,
    Task,
)

BASE_NS = 1_767_225_600_000_000_000
"""`baseTimeNanoseconds` of every document."""
START_NS = 3_600_000_000_000
"""Where the recording begins after it, so that clocks that are behind stay positive."""
_CBID = {"cudaLaunchKernel": 211, "cudaLaunchKernelExC": 430, "cudaMemcpyAsync": 41, "cudaEventRecord": 135}
_SYNC_ROWS = {
    "cudaStreamSynchronize": "Stream Sync",
    "cudaDeviceSynchronize": "Context Sync",
    "cudaStreamWaitEvent": "Stream Wait Event",
}
_DEVICE = {
    "name": "NVIDIA H100 80GB HBM3",
    "totalGlobalMem": 84929347584,
    "computeMajor": 9,
    "computeMinor": 0,
    "maxThreadsPerBlock": 1024,
    "warpSize": 32,
    "numSms": 132,
}

_OPERATORS_ONLY = ("Global rank start", "Global rank stride")
"""Arguments of `record_param_comms` that Kineto does not copy onto kernels."""

Event = dict[str, Any]


def document(job: Job, execution: Execution) -> dict[str, Any]:
    """The trace of one rank, ready to be written as JSON."""
    return _Document(job, execution).build()


def file_name(execution: Execution) -> str:
    """`rank<k>.<nanoseconds>.pt.trace.json.gz`, the end of the recording, as TensorBoard's plugin and HTA expect it."""
    ended = BASE_NS + START_NS + execution.clock[-1]
    return f"rank{execution.rank}.{ended}.pt.trace.json.gz"


class _Document:
    """One rank's document under way."""

    def __init__(self, job: Job, execution: Execution) -> None:
        self._job, self._one = job, execution
        self._clock = job.clock_of(execution.rank)
        self._device = execution.rank % job.ranks_per_host
        self._pid = 4000 + self._device
        self._tid = {MAIN: self._pid, AUTOGRAD: self._pid + 500}
        self._open: list[int] = []
        self._launch_of: dict[int, tuple[int, int]] = {}
        self._twins: dict[tuple[int, int], tuple[int, int]] = {}

    def build(self) -> dict[str, Any]:
        job, rank = self._job, self._one.rank
        group = {"pg_name": "0", "pg_desc": "default_pg", "backend_config": "cuda:nccl"}
        return {
            "schemaVersion": 1,
            "deviceProperties": [{"id": k, **_DEVICE} for k in range(min(job.ranks, job.ranks_per_host))],
            "cuda_runtime_version": 12060,
            "record_shapes": 1,
            "with_stack": int(job.with_stack),
            "distributedInfo": {
                "backend": "nccl",
                "rank": rank,
                "world_size": job.ranks,
                "pg_count": 1,
                "pg_config": [{**group, "pg_size": job.ranks, "ranks": list(range(job.ranks))}],
                "nccl_version": "2.21.5",
            },
            "host_name": f"node{job.host_of(rank)}",
            "displayTimeUnit": "ms",
            "baseTimeNanoseconds": BASE_NS,
            "traceEvents": [
                *self._host_events(),
                *self._device_events(),
                *self._annotations_on_the_device(),
                *self._closing(),
            ],
        }

    def _ts(self, time: int) -> int:
        return self._clock.read(time) + START_NS

    def _span(self, category: str, name: str, row: tuple[int, int], times: tuple[int, int]) -> Event:
        begin, end = self._ts(times[0]), self._ts(times[1])
        pid, tid = row
        return {
            "ph": "X",
            "cat": category,
            "name": name,
            "pid": pid,
            "tid": tid,
            "ts": begin / 1000,
            "dur": (end - begin) / 1000,
        }

    def _host_events(self) -> Iterator[Event]:
        clock = self._one.clock
        ends = {one.begin: k for k, one in enumerate(self._one.program.instructions) if isinstance(one, End)}
        for k, one in enumerate(self._one.program.instructions):
            match one:
                case Begin():
                    self._open.append(k)
                    row = (self._pid, self._tid[one.thread])
                    event = self._span(one.category, one.name, row, (clock[k], clock[ends[k]]))
                    yield {**event, "args": {"External id": k + 1, "Ev Idx": k, **one.args}}
                case End():
                    self._open.pop()
                case Call():
                    yield from self._runtime(k, one)

    def _runtime(self, k: int, call: Call) -> Iterator[Event]:
        times = (self._one.clock[k], self._one.clock[k + 1])
        row = (self._pid, self._tid[call.thread])
        external, correlation = self._external(k), k + 1
        args = {"External id": external, "cbid": _CBID.get(call.name, 165), "correlation": correlation}
        yield {**self._span("cuda_runtime", call.name, row, times), "args": args}
        if call.task is not None:
            yield from self._flow(row, times[0], correlation, "s")
            self._launch_of[call.task] = (correlation, external)
            self._stretch_twins(call.task, call.thread)
        elif self._job.sync_events and call.name in _SYNC_ROWS:
            yield self._sync_row(call, times, correlation)

    def _stretch_twins(self, number: int, thread: str) -> None:
        """Annotations that are open on the launching thread cover the task on the device."""
        stream = self._one.program.tasks[number].stream
        times = (self._one.start[number], self._one.end[number])
        for begin in self._open:
            one = self._one.program.instructions[begin]
            if isinstance(one, Begin) and one.category == "user_annotation" and one.thread == thread:
                start, end = self._twins.get((begin, stream), times)
                self._twins[begin, stream] = (min(start, times[0]), max(end, times[1]))

    def _annotations_on_the_device(self) -> Iterator[Event]:
        """Kineto's GPU copies of annotations: from the first to the last activity that the annotation's thread launched.

        That of `ProfilerStep#k` knows nothing of backward, which another thread launched.
        """
        for (begin, stream), times in self._twins.items():
            one = self._one.program.instructions[begin]
            assert isinstance(one, Begin)
            twin = self._span("gpu_user_annotation", one.name, (self._device, stream), times)
            yield {**twin, "args": {"External id": begin + 1}}

    def _external(self, k: int) -> int:
        """The innermost operator that is open; user annotations and Python frames have ids of their own."""
        for begin in reversed(self._open):
            one = self._one.program.instructions[begin]
            if isinstance(one, Begin) and one.category == "cpu_op":
                return begin + 1
        return k + 1

    def _flow(self, row: tuple[int, int], time: int, correlation: int, end: str) -> Iterator[Event]:
        flow = {"id": correlation, "pid": row[0], "tid": row[1], "ts": self._ts(time) / 1000}
        yield {"ph": end, **flow, "cat": "ac2g", "name": "ac2g", **({"bp": "e"} if end == "f" else {})}

    def _sync_row(self, call: Call, times: tuple[int, int], correlation: int) -> Event:
        """CUPTI's synchronization record, which Kineto puts on the stream's row when they are asked for."""
        stream = -1 if call.stream is None or call.name == "cudaDeviceSynchronize" else call.stream
        name = _SYNC_ROWS[call.name]
        args = {
            "cuda_sync_kind": name,
            "stream": stream,
            "correlation": correlation,
            "device": self._device,
            "context": 1,
        }
        if call.record:
            args |= {
                "wait_on_stream": call.record[1],
                "wait_on_cuda_event_record_corr_id": call.record[0] + 1,
                "wait_on_cuda_event_id": call.record[0],
            }
        return {**self._span("cuda_sync", name, (self._device, stream), times), "args": args}

    def _device_events(self) -> Iterator[Event]:
        for number, task in enumerate(self._one.program.tasks):
            times = (self._one.start[number], self._one.end[number])
            correlation, external = self._launch_of[number]
            row = (self._device, task.stream)
            category = task.kind if task.kind != COLLECTIVE else KERNEL
            args = {"External id": external, "device": self._device, "context": 1, "stream": task.stream}
            args |= {"correlation": correlation, **_details(task, times[1] - times[0])}
            if task.exchange is not None:
                args |= self._arguments_of(external)
            yield {**self._span(category, task.name, row, times), "args": args}
            yield from self._flow(row, times[0], correlation, "f")

    def _arguments_of(self, external: int) -> dict[str, Any]:
        """Kineto copies `record_param_comms`' arguments onto the kernels that it launched."""
        params = self._one.program.instructions[external - 1]
        assert isinstance(params, Begin)
        return {name: value for name, value in params.args.items() if name not in _OPERATORS_ONLY}

    def _closing(self) -> Iterator[Event]:
        """Names of rows, and the two marks of the recording's window."""
        zero = self._ts(0) / 1000
        threads = {self._tid[MAIN]: "pt_main_thread", self._tid[AUTOGRAD]: "pt_autograd_0"}
        rows = [(self._pid, tid, f"thread {tid} ({name})") for tid, name in threads.items()]
        rows += [(self._device, stream, f"stream {stream} ") for stream in (COMPUTE, COMM)]
        for pid, label in ((self._pid, "CPU"), (self._device, f"GPU {self._device}")):
            shared = {"ph": "M", "ts": zero, "pid": pid, "tid": 0}
            yield {"name": "process_name", **shared, "args": {"name": "python"}}
            yield {"name": "process_labels", **shared, "args": {"labels": label}}
        for pid, tid, name in rows:
            shared = {"ph": "M", "ts": zero, "pid": pid, "tid": tid}
            yield {"name": "thread_name", **shared, "args": {"name": name}}
        mark = {"ph": "i", "s": "g"}
        where = {"pid": "Traces", "tid": "Trace PyTorch Profiler"}
        yield {"name": "Iteration Start: PyTorch Profiler", **mark, **where, "ts": zero}
        end = self._ts(self._one.clock[-1]) / 1000
        yield {"name": "Record Window End", **mark, "pid": "", "tid": "", "ts": end}


def _details(task: Task, duration: int) -> dict[str, Any]:
    if task.kind not in (KERNEL, COLLECTIVE):
        return {"bytes": task.bytes, "memory bandwidth (GB/s)": task.bytes / max(1, duration)}
    blocks = 8 if task.kind == COLLECTIVE else 512
    return {
        "queued": 0,
        "registers per thread": 96,
        "shared memory": 0,
        "blocks per SM": blocks / 132,
        "warps per SM": blocks * 8 / 132,
        "grid": [blocks, 1, 1],
        "block": [256, 1, 1],
        "est. achieved occupancy %": min(100, blocks * 8 // 132),
    }
