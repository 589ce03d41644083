"""A calibration and a run directory made by hand, with round figures, for tests of what the model makes of them."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import msgspec

from stepscope.audit.result import Audit, Collective, GradientTotals, Rank, Step, Totals, Verdict
from stepscope.budget.measured import SCHEMA, Calibration, Fit
from stepscope.budget.measured import Collective as Measured
from stepscope.capture.metadata import DdpModule, FsdpModule, Parameter, RunMetadata

HERE = socket.gethostname()
BUCKETS = (10_000_000, 20_000_000)
TIMES_MS = (100.0, 260.0)
STEPS = (4, 5, 6)


def fit(**changes: Any) -> Fit:
    """50 us a hop and 0.1 GB/s, found to hold from 64 KiB to 16 MB; nothing takes less than 0.4 ms."""
    made = Fit(
        alpha_us=50.0,
        alpha_us_interval=(45.0, 56.0),
        bandwidth_gb_per_s=0.1,
        bandwidth_gb_per_s_interval=(0.098, 0.103),
        floor_us=400.0,
        fitted_from_bytes=65_536,
        valid_bytes=(65_536, 16_000_000),
        tolerance=0.1,
    )
    return msgspec.structs.replace(made, **changes)


def calibration(host: str = HERE, *, ranks: int = 2, own: Fit | None = None, **others: Fit) -> Calibration:
    """Of an all-reduce, and of other collectives by name."""
    fits = {"all_reduce": own or fit(), **others}
    base = fits["all_reduce"]
    return Calibration(
        schema=SCHEMA,
        date="2026-11-30T05:00:00+00:00",
        hosts=[host],
        world_size=ranks,
        backend="gloo",
        device="cpu",
        transport="TCP, within one host",
        emulated=None,
        alpha_us=base.alpha_us,
        alpha_us_interval=base.alpha_us_interval,
        bandwidth_gb_per_s=base.bandwidth_gb_per_s,
        bandwidth_gb_per_s_interval=base.bandwidth_gb_per_s_interval,
        valid_bytes=base.valid_bytes,
        source="all_reduce",
        collectives=[
            Measured(
                name=name,
                hops=(2 if name == "all_reduce" else 1) * (ranks - 1),
                volume=(2 if name == "all_reduce" else 1) * (ranks - 1) / ranks,
                points=[],
                fit=one,
            )
            for name, one in fits.items()
        ],
        command=["stepscope", "calibrate"],
        versions={},
        environment={},
    )


def write_calibration(folder: Path, made: Calibration | None = None) -> Path:
    path = folder / "fabric.json"
    path.write_bytes(msgspec.json.encode(made or calibration()))
    return path


def collective(rank: int, step: int, bucket: int, **changes: Any) -> Collective:
    """The first bucket from 100 to 200 ms, the second from 200 to 460, or 260 more of waiting before it where it is late."""
    start = (100.0, 200.0)[bucket]
    made = Collective(
        rank=rank,
        source=f"rank{rank}",
        step=step,
        kind="all_reduce",
        phase="backward",
        gradient=True,
        role="gradient",
        bytes=BUCKETS[bucket],
        dtype="float32",
        group_size=2,
        name="gloo:all_reduce",
        launch_ms=1000.0 * step + start,
        start_ms=1000.0 * step + start,
        duration_ms=TIMES_MS[bucket],
        wait_ms=0.0,
        wire_ms=TIMES_MS[bucket],
        hidden_backward_ms=(100.0, 0.0)[bucket],
        exposed_ms=(0.0, 260.0)[bucket],
    )
    return msgspec.structs.replace(made, **changes)


def audit(*, paired: bool = True, **changes: Any) -> Audit:
    """Two ranks, three counted steps of 600 ms: 400 of compute, the middle 300 backward, 360 of transfer of which 260 exposed.

    paired: the ranks were laid side by side, so that transfer is known.
    """
    unpaired: dict[str, Any] = {} if paired else {"wire_ms": None, "wait_ms": None}
    return Audit(
        stepscope="0.1.0",
        verdict=Verdict(label="comm-bound", reason="link", host_bound=False, cost_share=0.4, explanation=""),
        ranks=[_rank(number, paired=paired) for number in (0, 1)],
        collectives=[
            collective(rank, step, bucket, **unpaired, **changes)
            for rank in (0, 1)
            for step in STEPS
            for bucket in (0, 1)
        ],
        buckets=[],
    )


def _rank(number: int, *, paired: bool) -> Rank:
    wire = {"wire_ms": 360.0, "wire_hidden_backward_ms": 100.0, "wire_exposed_ms": 260.0} if paired else {}
    grad = GradientTotals(
        comm_ms=420.0,
        hidden_backward_ms=150.0,
        hidden_other_ms=10.0,
        exposed_ms=260.0,
        floor_ms=250.0,
        **wire,
    )
    steps = [
        Step(
            step=step,
            valid=True,
            start_ms=1000.0 * step,
            wall_ms=660.0,
            comm_ms=420.0,
            compute_ms=400.0,
            backward_compute_ms=300.0,
            exposed_ms=260.0,
            collectives=2,
            unknown_phase=0,
            grad=grad,
        )
        for step in STEPS
    ]
    totals = Totals(comm_ms=1260.0, compute_ms=1200.0, exposed_ms=780.0, collectives=6, unknown_phase=0)
    return Rank(
        rank=number,
        world_size=2,
        backend="gloo",
        device="cpu",
        source=f"rank{number}",
        totals=totals,
        steps=steps,
    )


def run_metadata(**changes: Any) -> RunMetadata:
    """7.5 million parameters in float32, under DDP."""
    made = RunMetadata(
        stepscope="0.1.0",
        command=["stepscope", "run", "train.py"],
        script="train.py",
        started="2026-11-30T05:00:00+00:00",
        world_size=2,
        backend="gloo",
        hosts=[HERE],
        versions={},
        environment={},
        warmup=3,
        steps=3,
        with_stack=False,
        recorded_steps=list(STEPS),
        ddp=[ddp()],
        ranks=[],
    )
    return msgspec.structs.replace(made, **changes)


def ddp() -> DdpModule:
    return DdpModule(
        module="GPT",
        bucket_cap_bytes=20_000_000,
        find_unused_parameters=False,
        static_graph=False,
        gradient_as_bucket_view=False,
        broadcast_buffers=True,
        comm_hook=None,
        initial_bucket_bytes=[],
        rebuilt=True,
        rebuilt_bucket_bytes=list(BUCKETS),
        rebuilt_bucket_parameters=[[0], [1]],
        parameters=[Parameter(index=0, name="weight", numel=7_500_000, dtype="float32")],
        in_ready_order=True,
    )


def fsdp() -> FsdpModule:
    return FsdpModule(module="block", numel=7_500_000, reshard_after_forward=True)


def write_run(folder: Path, made: Audit | None = None, run: RunMetadata | None = None) -> Path:
    path = folder / "recorded"
    path.mkdir()
    (path / "run.json").write_bytes(msgspec.json.encode(run or run_metadata()))
    (path / "audit.json").write_bytes(msgspec.json.encode(made or audit()))
    return path
