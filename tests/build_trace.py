"""Builds Kineto traces with chosen timestamps, so that tests can assert exact figures.

Times are microseconds, as in the file; three decimals are exact. Threads are operating-system thread ids. A training
step of one bucket:

    trace = TraceBuilder(rank=0, world_size=2)
    trace.step(5, 0, 600)
    trace.kernel("gemm", launched=40, start=100, duration=100)
    trace.backward("MmBackward0", 60, 20)
    trace.kernel("gemm", launched=65, start=200, duration=100, thread=AUTOGRAD)
    trace.accumulate_grad(85, 20)
    trace.collective("allreduce", launched=90, start=250, duration=100, elements=1 << 20, thread=AUTOGRAD)
    trace.write(tmp_path / "rank0.json")
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

PROCESS = 10
MAIN = 10
AUTOGRAD = 11
GLOO_WORKERS = (21, 22)
COMPUTE_STREAM = 7
COMM_STREAM = 17

BACKWARD = "autograd::engine::evaluate_function: "
ACCUMULATE_GRAD = BACKWARD + "torch::autograd::AccumulateGrad"

_KERNEL_NAMES = {
    "allreduce": "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
    "reduce_scatter": "ncclDevKernel_ReduceScatter_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
    "allgather": "ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
    "broadcast": "ncclDevKernel_Broadcast_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
    "reduce": "ncclDevKernel_Reduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
    "all_to_all": "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)",
}


class TraceBuilder:
    """Collects events; `document()` is the trace as Kineto writes it, `write()` puts it in a file.

    rank None leaves `distributedInfo` out, as in a run without a process group.
    base_ns: `baseTimeNanoseconds`; None leaves it out, as in traces with absolute timestamps.
    """

    def __init__(
        self,
        rank: int | None = 0,
        world_size: int = 2,
        backend: str = "nccl",
        *,
        device: int = 0,
        device_name: str = "NVIDIA A100-SXM4-80GB",
        base_ns: int | None = 0,
    ) -> None:
        self.events: list[dict[str, Any]] = []
        self.header: dict[str, Any] = {"schemaVersion": 1, "deviceProperties": []}
        if backend == "nccl":
            self.header["deviceProperties"] = [{"id": device, "name": device_name}]
        if rank is not None:
            ranks = list(range(world_size))
            group = {
                "pg_name": "0",
                "pg_desc": "default_pg",
                "pg_size": world_size,
                "ranks": ranks,
            }
            self.header["distributedInfo"] = {
                "backend": backend,
                "rank": rank,
                "world_size": world_size,
                "pg_count": 1,
                "pg_config": [group],
            }
        if base_ns is not None:
            self.header["baseTimeNanoseconds"] = base_ns
        self._world_size = world_size
        self._device = device
        self._correlation = 100
        self._external_id = 0

    def span(
        self,
        category: str | None,
        name: str,
        start: float,
        duration: float,
        *,
        pid: int | str = PROCESS,
        thread: int | str = MAIN,
        args: dict[str, Any] | None = None,
    ) -> None:
        """Any complete event; category None leaves `cat` out."""
        event: dict[str, Any] = {
            "ph": "X",
            "cat": category,
            "name": name,
            "pid": pid,
            "tid": thread,
        }
        if category is None:
            del event["cat"]
        self.events.append(event | {"ts": start, "dur": duration, "args": args or {}})

    def cpu_op(
        self,
        name: str,
        start: float,
        duration: float,
        *,
        thread: int = MAIN,
        dims: Sequence[object] | None = None,
        types: Sequence[str] | None = None,
        **args: Any,
    ) -> None:
        """An operator on a CPU thread; dims and types are `Input Dims` and `Input type`."""
        self.span(
            "cpu_op",
            name,
            start,
            duration,
            thread=thread,
            args=self._cpu_args(dims, types, args),
        )

    def annotation(
        self,
        name: str,
        start: float,
        duration: float,
        *,
        thread: int = MAIN,
        dims: Sequence[object] | None = None,
        types: Sequence[str] | None = None,
        **args: Any,
    ) -> None:
        """A `record_function` span."""
        cpu_args = self._cpu_args(dims, types, args)
        self.span("user_annotation", name, start, duration, thread=thread, args=cpu_args)

    def step(self, number: int, start: float, duration: float) -> None:
        """The profiler's own mark around one training step."""
        self.annotation(f"ProfilerStep#{number}", start, duration)

    def optimizer(self, start: float, duration: float, name: str = "SGD") -> None:
        """`Optimizer.step` of the named optimizer, on the main thread."""
        self.annotation(f"Optimizer.step#{name}.step", start, duration)

    def backward(self, function: str, start: float, duration: float, *, thread: int = AUTOGRAD) -> None:
        """The autograd engine running one backward function."""
        self.cpu_op(BACKWARD + function, start, duration, thread=thread)

    def accumulate_grad(self, start: float, duration: float, *, thread: int = AUTOGRAD) -> None:
        """The autograd engine accumulating one parameter's gradient: what DDP's reducer hooks into."""
        self.cpu_op(ACCUMULATE_GRAD, start, duration, thread=thread)

    def runtime(
        self,
        name: str,
        start: float,
        duration: float,
        *,
        thread: int = MAIN,
        correlation: int | None = None,
        category: str = "cuda_runtime",
    ) -> int:
        """A runtime call; returns its correlation id (a new one unless given)."""
        number = self._new_correlation() if correlation is None else correlation
        args = {"cbid": 211, "correlation": number, "External id": number}
        self.span(category, name, start, duration, thread=thread, args=args)
        return number

    def kernel(
        self,
        name: str,
        *,
        start: float,
        duration: float,
        launched: float | None = None,
        launch_duration: float = 3,
        thread: int = MAIN,
        stream: int = COMPUTE_STREAM,
        launch: str = "cudaLaunchKernel",
        category: str = "kernel",
        **args: Any,
    ) -> int:
        """A device activity and, where launched is given, the runtime call that launched it; returns the correlation."""
        number = self._new_correlation()
        if launched is not None:
            self.runtime(launch, launched, launch_duration, thread=thread, correlation=number)
        place = {
            "device": self._device,
            "context": 1,
            "stream": stream,
            "correlation": number,
        }
        device = self._device
        self.span(
            category,
            name,
            start,
            duration,
            pid=device,
            thread=stream,
            args=place | args,
        )
        return number

    def memcpy(self, name: str, *, start: float, duration: float, **more: Any) -> int:
        """A copy, such as "Memcpy DtoH (Device -> Pageable)"; further arguments as for `kernel`."""
        more = {"launch": "cudaMemcpyAsync", "category": "gpu_memcpy"} | more
        return self.kernel(name, start=start, duration=duration, **more)

    def memset(self, *, start: float, duration: float, **more: Any) -> int:
        """A memset; further arguments as for `kernel`."""
        more = {"launch": "cudaMemsetAsync", "category": "gpu_memset"} | more
        return self.kernel("Memset (Device)", start=start, duration=duration, **more)

    def event_record(self, at: float, *, thread: int = MAIN) -> int:
        """`cudaEventRecord`; returns its correlation."""
        return self.runtime("cudaEventRecord", at, 1, thread=thread)

    def synchronise(
        self,
        call: str,
        kind: str,
        start: float,
        duration: float = 1,
        *,
        stream: int = COMPUTE_STREAM,
        event: tuple[int, int] | None = None,
        thread: int = MAIN,
    ) -> None:
        """A synchronising call and its `cuda_sync` row, as Kineto writes them with `enable_cuda_sync_events`.

        kind: "Stream Wait Event", "Stream Sync", "Event Sync" or "Context Sync". stream: the one that waits or is waited
        for. event: stream and correlation of the `cudaEventRecord` that is waited for.
        """
        correlation = self.runtime(call, start, duration, thread=thread)
        args: dict[str, Any] = {"cuda_sync_kind": kind, "stream": stream, "correlation": correlation}
        args |= {"device": self._device, "context": 1}
        if event is not None:
            args |= {"wait_on_stream": event[0], "wait_on_cuda_event_record_corr_id": event[1]}
        self.span("cuda_sync", kind, start, duration, pid=self._device, thread=stream, args=args)

    def collective(
        self,
        kind: str,
        *,
        launched: float,
        start: float,
        duration: float,
        elements: int,
        elements_out: int | None = None,
        dtype: str = "Float",
        sequence: int | None = None,
        group: str = "0",
        group_ranks: Sequence[int] | None = None,
        thread: int = AUTOGRAD,
        stream: int = COMM_STREAM,
        kernel_name: str | None = None,
        described: bool = True,
    ) -> int:
        """An NCCL collective: `record_param_comms` around its launch, and its kernel; returns the correlation.

        kind is as NCCL's process group writes it ("allreduce", "reduce_scatter", "allgather", "broadcast", ...).
        described False leaves the collective's arguments off the kernel, as older Kineto does.
        """
        ranks = list(range(self._world_size)) if group_ranks is None else list(group_ranks)
        args: dict[str, Any] = {
            "Collective name": kind,
            "In msg nelems": elements,
            "Out msg nelems": elements if elements_out is None else elements_out,
            "Group size": len(ranks),
            "dtype": dtype,
            "In split size": "[]",
            "Out split size": "[]",
            "Process Group Name": group,
            "Process Group Description": "default_pg",
            "Process Group Ranks": str(ranks),
        }
        if sequence is not None:
            args["Seq"] = sequence
        self.cpu_op("record_param_comms", launched - 2, 7, thread=thread, **args)
        return self.kernel(
            kernel_name or _KERNEL_NAMES[kind],
            launched=launched,
            start=start,
            duration=duration,
            thread=thread,
            stream=stream,
            **(args if described else {}),
        )

    def gloo(
        self,
        kind: str,
        start: float,
        duration: float,
        *,
        elements: int,
        dtype: str = "float",
        launched: float | None = None,
        thread: int = MAIN,
        worker: int = 0,
        shaped: bool = True,
    ) -> None:
        """A gloo collective ("all_reduce", ...) on a worker thread and, where launched is given, its c10d op.

        shaped False leaves `Input Dims` out, as a recording without shapes does.
        """
        if launched is not None:
            op = {"all_reduce": "allreduce_", "all_gather": "allgather_"}.get(kind, kind + "_")
            lists = [[[elements]], [], []] if shaped else None
            self.cpu_op(f"c10d::{op}", launched, 5, thread=thread, dims=lists, types=["TensorList", "", ""])
        self.name_thread(GLOO_WORKERS[worker], "pt_gloo_runloop")
        self.annotation(
            f"gloo:{kind}",
            start,
            duration,
            thread=GLOO_WORKERS[worker],
            dims=[[elements]] if shaped else None,
            types=[dtype],
        )

    def name_thread(self, thread: int, name: str, *, pid: int = PROCESS) -> None:
        """The thread's name, as Kineto writes it: with the thread id in front."""
        row = {"name": "thread_name", "ph": "M", "ts": 0, "pid": pid, "tid": thread}
        event = row | {"args": {"name": f"thread {thread} ({name})"}}
        if event not in self.events:
            self.events.append(event)

    def end(self, at: float) -> None:
        """Kineto's mark that the whole recording window was written."""
        self.events.append(
            {
                "name": "Record Window End",
                "ph": "i",
                "s": "g",
                "pid": "",
                "tid": "",
                "ts": at,
            }
        )

    def document(self, *, header_last: bool = False) -> dict[str, Any]:
        """The whole trace; `Record Window End` is added unless `end` was called."""
        if not any(event["name"] == "Record Window End" for event in self.events):
            self.end(
                max(
                    (event["ts"] + event.get("dur", 0) for event in self.events),
                    default=0,
                )
            )
        events = {"traceEvents": self.events}
        return events | self.header if header_last else self.header | events

    def write(self, path: Path, *, header_last: bool = False) -> Path:
        """Write the trace, gzipped if the name ends in .gz; returns the path."""
        text = json.dumps(self.document(header_last=header_last)).encode()
        path.write_bytes(gzip.compress(text) if path.suffix == ".gz" else text)
        return path

    def _cpu_args(
        self,
        dims: Sequence[object] | None,
        types: Sequence[str] | None,
        args: dict[str, Any],
    ) -> dict[str, Any]:
        self._external_id += 1
        shapes = {} if dims is None else {"Input Dims": list(dims), "Input type": list(types or [])}
        return {"External id": self._external_id} | shapes | args

    def _new_correlation(self) -> int:
        self._correlation += 1
        return self._correlation
