"""Why communication that takes much of a step costs little of it: hidden, not waited for, or not yet long."""

from __future__ import annotations

from pathlib import Path

import pytest

from build_trace import AUTOGRAD, TraceBuilder
from stepscope.audit.build import audit
from stepscope.audit.result import Thresholds, Verdict
from stepscope.trace.classify import classify
from stepscope.trace.reader import read


def verdict_of(folder: Path, *, reads: bool, start: float) -> Verdict:
    """Steps of 1 ms: backward until 0.6, an all-reduce of 0.3 ms, the optimizer. reads: the host waits for the device's end."""
    trace = TraceBuilder()
    for number in range(3):
        at = 1000 * number
        trace.step(number + 5, at, 1000)
        trace.backward("MmBackward0", at + 60, 20)
        trace.kernel("gemm", launched=at + 65, start=at + 100, duration=490, thread=AUTOGRAD)
        trace.accumulate_grad(at + 85, 20)
        trace.kernel("copy", launched=at + 86, start=at + 590, duration=10, thread=AUTOGRAD)
        trace.collective("allreduce", launched=at + 95, start=at + start, duration=300, elements=1 << 20)
        trace.optimizer(at + 120, 30)
        trace.kernel("adam", launched=at + 125, start=at + 900, duration=50)
        if reads:
            trace.runtime("cudaStreamSynchronize", at + 200, 750)
    thresholds = Thresholds(cost_share=0.31 if reads else 0.29, comm_share=0.1)
    return audit([classify(read(trace.write(folder / "rank0.json")))], thresholds).verdict


@pytest.mark.parametrize(
    ("reads", "start", "reason", "said"),
    [
        (True, 200, "hidden now", "comm-sensitive: most communication is hidden now"),
        (True, 600, "exposed, but below the threshold", "Most of it is exposed."),
        (False, 600, "exposed, but not what the step waits for", "Much of it is exposed, yet"),
    ],
)
def test_the_reason_is_true_of_what_is_exposed_and_of_what_that_costs(
    reads: bool, start: float, reason: str, said: str, tmp_path: Path
) -> None:
    made = verdict_of(tmp_path, reads=reads, start=start)
    assert (made.label, made.reason) == ("comm-sensitive", reason)
    assert made.explanation.startswith(said)
