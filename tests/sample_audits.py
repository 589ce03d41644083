"""Audits made by hand, for tests of what is done with one. The figures are round, and they add up as real ones do."""

from __future__ import annotations

from stepscope.audit.result import (
    Audit,
    Bucket,
    Collective,
    Finding,
    GradientTotals,
    Rank,
    Step,
    Timeline,
    Totals,
    Verdict,
    Warning,
    Waterfall,
)

MIB = 1 << 20


def step(number: int, *, start: float = 0.0, why_invalid: str | None = None) -> Step:
    """A 400 ms step: forward 0-100, backward 100-300, two buckets at 180-280 and 280-360, optimizer 360-400."""
    return Step(
        step=number,
        valid=why_invalid is None,
        why_invalid=why_invalid,
        start_ms=start,
        wall_ms=400.0,
        comm_ms=190.0,
        compute_ms=340.0,
        backward_compute_ms=200.0,
        hidden_backward_ms=120.0,
        hidden_other_ms=10.0,
        hidden_ms=130.0,
        exposed_ms=60.0,
        collectives=3,
        unknown_phase=0,
        device_busy_share=1.0,
        host_starved_share=0.0,
        grad=GradientTotals(
            comm_ms=180.0,
            hidden_backward_ms=120.0,
            hidden_other_ms=0.0,
            exposed_ms=60.0,
            floor_ms=20.0,
            excess_ms=40.0,
        ),
        waterfall=Waterfall(host_starved_ms=0.0),
        cost_ms=60.0,
        timeline=Timeline(
            forward=[(start, start + 100.0)],
            backward=[(start + 100.0, start + 300.0)],
            optimizer=[(start + 360.0, start + 400.0)],
            exposed=[(start + 300.0, start + 360.0)],
        ),
    )


def collectives(rank: int, number: int, *, start: float = 0.0) -> list[Collective]:
    """What `step` launches: a buffer broadcast and two gradient buckets."""

    def one(kind: str, role: str, begin: float, duration: float, size: int, exposed: float) -> Collective:
        return Collective(
            rank=rank,
            source=source(rank),
            step=number,
            kind=kind,
            phase="backward" if role == "gradient" else "forward",
            gradient=role == "gradient",
            role=role,
            bytes=size,
            name=f"gloo:{kind}",
            launch_ms=start + begin,
            start_ms=start + begin,
            duration_ms=duration,
            hidden_backward_ms=duration - exposed if role == "gradient" else 0.0,
            exposed_ms=exposed,
        )

    return [
        one("broadcast", "buffer", 0.0, 10.0, 4096, 0.0),
        one("all_reduce", "gradient", 180.0, 100.0, 25 * MIB, 0.0),
        one("all_reduce", "gradient", 280.0, 80.0, 20 * MIB, 60.0),
    ]


def source(rank: int) -> str:
    return f"runs/demo/rank{rank}.1753000000000000000.pt.trace.json.gz"


def recorded_rank(number: int) -> Rank:
    return Rank(
        rank=number,
        world_size=2,
        backend="gloo",
        device="cpu",
        host="node0",
        source=source(number),
        totals=Totals(
            comm_ms=760.0,
            compute_ms=1360.0,
            backward_compute_ms=800.0,
            hidden_backward_ms=480.0,
            hidden_other_ms=40.0,
            hidden_ms=520.0,
            exposed_ms=240.0,
            collectives=12,
            unknown_phase=0,
        ),
        steps=[
            step(4, start=0.0, why_invalid="bucket rebuild"),
            *(step(number, start=400.0 * (number - 4)) for number in (5, 6, 7)),
        ],
    )


def comm_bound() -> Audit:
    """Two gloo ranks, three valid steps each and one warm-up step."""
    return Audit(
        stepscope="0.1.0",
        verdict=Verdict(
            label="comm-bound",
            reason="serialised",
            host_bound=False,
            cost_share=0.15,
            cost_share_ci=(0.148, 0.153),
            comm_share=0.559,
            comm_share_ci=(0.551, 0.57),
            overlap_backward=0.667,
            explanation="The exposed time is an upper bound of the cost.",
            next_step="stepscope run --nproc-per-node 2 gpt --bucket-cap-mb 8",
        ),
        ranks=[recorded_rank(0), recorded_rank(1)],
        collectives=[
            one
            for rank in (0, 1)
            for number in (4, 5, 6, 7)
            for one in collectives(rank, number, start=400.0 * (number - 4))
        ],
        buckets=[
            Bucket(
                bucket=0,
                bytes=25 * MIB,
                parameters=31,
                steps=6,
                ready_ms=79.5,
                launch_ms=79.8,
                start_ms=80.0,
                duration_ms=100.0,
                hidden_share=1.0,
                exposed_ms=0.0,
            ),
            Bucket(
                bucket=1,
                bytes=20 * MIB,
                parameters=22,
                steps=6,
                ready_ms=178.0,
                launch_ms=179.0,
                start_ms=180.0,
                duration_ms=80.0,
                hidden_share=0.25,
                exposed_ms=60.0,
            ),
        ],
    )


def no_communication() -> Audit:
    """One rank that never spoke to another."""
    quiet = Totals(
        comm_ms=0.0,
        compute_ms=0.1109,
        backward_compute_ms=0.0485,
        exposed_ms=0.0,
        collectives=0,
        unknown_phase=0,
    )
    return Audit(
        stepscope="0.1.0",
        verdict=Verdict(
            label="no communication",
            reason="no collective was recorded",
            host_bound=False,
            explanation="Overlap is not applicable.",
        ),
        ranks=[Rank(source="minitoy.json.gz", device="rocm", totals=quiet, steps=[])],
        collectives=[],
        buckets=[],
    )


def inconclusive() -> Audit:
    """A file without launch records, whose names are none of a terminal's business."""
    totals = Totals(
        comm_ms=0.1, compute_ms=0.2, hidden_ms=0.05, exposed_ms=0.05, collectives=1, unknown_phase=4
    )
    return Audit(
        stepscope="0.1.0",
        verdict=Verdict(
            label="inconclusive",
            reason="launch records are missing, so backward can't be told from forward",
            host_bound=False,
            explanation="Record again with CPU activities.",
        ),
        ranks=[Rank(rank=0, world_size=2, device="cuda", source="[red]odd.json", totals=totals, steps=[])],
        collectives=[
            Collective(
                rank=0,
                source="[red]odd.json",
                kind="unknown",
                phase="unknown",
                gradient=False,
                role="other",
                name="ncclKernel_<script>[bold]\x1b[31m",
                start_ms=0.0,
                duration_ms=0.1,
                exposed_ms=0.05,
            )
        ],
        buckets=[],
        warnings=[
            Warning(code="no-launch-records", message="kernels have no launch", source="[red]odd.json")
        ],
    )


def finding() -> Finding:
    return Finding(
        cause="bucket-too-large",
        severity="high",
        cost_ms=40.0,
        cost_ms_ci=(38.5, 41.25),
        confidence="high",
        steps=[5, 6, 7],
        ranks=[0, 1],
        evidence=["the last bucket holds 20.0 MiB and starts when backward has 20 ms left"],
        fix="lower bucket_cap_mb to 8",
    )
