"""A job of two ranks with an all-reduce that is exposed for as long as a test wants, for tests of commands."""

from __future__ import annotations

from pathlib import Path

from build_trace import AUTOGRAD, TraceBuilder

STEPS = range(5, 9)
STEP_US = 1000


def write_trace(file: Path, *, rank: int = 0, exposed_us: float = 300.0) -> Path:
    """Four steps of 1 ms; each all-reduce of 300 us lies under backward but for its last `exposed_us`."""
    trace = TraceBuilder(rank=rank, world_size=2)
    for index, number in enumerate(STEPS):
        origin = index * STEP_US
        trace.step(number, origin, STEP_US)
        trace.kernel("gemm", launched=origin + 40, start=origin + 100, duration=100)
        trace.backward("MmBackward0", origin + 60, 20)
        trace.kernel("gemm", launched=origin + 65, start=origin + 200, duration=400, thread=AUTOGRAD)
        trace.accumulate_grad(origin + 85, 20)
        trace.kernel("copy", launched=origin + 86, start=origin + 280, duration=10, stream=8, thread=AUTOGRAD)
        trace.collective(
            "allreduce",
            launched=origin + 90,
            start=origin + 300 + exposed_us,
            duration=300,
            elements=1 << 20,
            thread=AUTOGRAD,
        )
        trace.optimizer(origin + 120, 30)
        trace.kernel("adam", launched=origin + 125, start=origin + 900, duration=50)
        trace.runtime("cudaStreamSynchronize", origin + 200, 750)
    file.parent.mkdir(parents=True, exist_ok=True)
    return trace.write(file)
