"""Every exposed millisecond of a step has one name: traces whose every timestamp is chosen."""

from __future__ import annotations

from pathlib import Path

import pytest

from build_trace import AUTOGRAD, MAIN, TraceBuilder
from stepscope.audit.build import audit
from stepscope.audit.result import Step
from stepscope.trace.classify import classify
from stepscope.trace.reader import read

ELEMENTS = 1 << 20


def audited(trace: TraceBuilder, folder: Path) -> Step:
    (step,) = audit([classify(read(trace.write(folder / "rank0.json")))]).ranks[0].steps
    return step


def parts(step: Step) -> dict[str, float]:
    assert step.waterfall is not None
    return {
        name: value for name in step.waterfall.__struct_fields__ if (value := getattr(step.waterfall, name))
    }


def test_every_exposed_millisecond_has_one_name(tmp_path: Path) -> None:
    trace = TraceBuilder()
    trace.step(5, 0, 2000)
    trace.collective("allgather", launched=5, start=20, duration=60, elements=64, thread=MAIN)
    trace.backward("MmBackward0", 90, 900)
    trace.kernel("gemm", launched=95, start=100, duration=90, thread=AUTOGRAD)
    trace.accumulate_grad(100, 10)
    trace.kernel("copy", launched=101, start=190, duration=10, thread=AUTOGRAD)
    trace.accumulate_grad(115, 20)
    trace.collective("allreduce", launched=120, start=200, duration=250, elements=ELEMENTS)
    # Idle from 200: the next kernel is launched at 300 (100 us the host's) and starts at 400 (100 us it was held back).
    trace.kernel("gemm", launched=300, start=400, duration=90, thread=AUTOGRAD)
    trace.accumulate_grad(305, 10)
    trace.kernel("copy", launched=306, start=490, duration=10, thread=AUTOGRAD)
    # Ready at 500 and over at 600 at best; launched late, it runs from 580 to 680.
    trace.collective("allreduce", launched=570, start=580, duration=100, elements=ELEMENTS)
    trace.accumulate_grad(565, 20)
    step = audited(trace, tmp_path)
    assert step.exposed_ms == pytest.approx(0.06 + 0.2 + 0.1)
    assert parts(step) == pytest.approx(
        {
            "outside_backward_ms": 0.06,
            "host_starved_ms": 0.1,
            "device_blocked_ms": 0.1,
            "late_launch_ms": 0.08,
            "tail_ms": 0.02,
        }
    )


def test_after_backward_a_full_link_is_a_queue_and_the_last_bucket_the_tail(tmp_path: Path) -> None:
    trace = TraceBuilder()
    trace.step(5, 0, 2000)
    for at in (100, 200):
        trace.backward("MmBackward0", at - 10, 5)
        trace.kernel("gemm", launched=at - 9, start=at, duration=90, thread=AUTOGRAD)
        trace.accumulate_grad(at + 1, 10)
        trace.kernel("copy", launched=at + 2, start=at + 90, duration=10, thread=AUTOGRAD)
        trace.accumulate_grad(at + 12, 10)
    trace.collective("allreduce", launched=115, start=200, duration=400, elements=ELEMENTS)
    trace.collective("allreduce", launched=215, start=600, duration=150, elements=ELEMENTS)
    step = audited(trace, tmp_path)
    assert step.exposed_ms == 0.45
    assert parts(step) == pytest.approx({"queue_ms": 0.3, "tail_ms": 0.15})
    assert step.grad is not None
    assert (step.grad.floor_ms, step.grad.excess_ms) == (0.45, 0.0)


def test_a_floor_is_no_more_than_what_the_step_exposed(tmp_path: Path) -> None:
    trace = TraceBuilder()
    trace.step(5, 0, 2000)
    trace.backward("MmBackward0", 90, 5)
    trace.kernel("gemm", launched=91, start=100, duration=90, thread=AUTOGRAD)
    trace.accumulate_grad(101, 10)
    trace.kernel("copy", launched=102, start=190, duration=10, thread=AUTOGRAD)
    trace.collective("allreduce", launched=115, start=200, duration=300, elements=ELEMENTS)
    trace.optimizer(300, 50)
    trace.kernel("adam", launched=310, start=400, duration=100)
    step = audited(trace, tmp_path)
    assert step.grad is not None
    assert (step.grad.hidden_other_ms, step.grad.exposed_ms) == pytest.approx((0.1, 0.2))
    assert (step.grad.floor_ms, step.grad.excess_ms) == pytest.approx((0.2, 0.0)), "its transfer takes 0.3 ms"
