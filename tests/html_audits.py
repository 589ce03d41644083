"""Audits for the tests of the page: one with something in every section, one that means harm, one that is large."""

from __future__ import annotations

from typing import Any

import msgspec

import sample_audits
from stepscope.audit.result import (
    Audit,
    Bucket,
    Collective,
    Finding,
    GradientTotals,
    Rank,
    Recommendation,
    RingModel,
    Step,
    Timeline,
    Totals,
    Verdict,
    Warning,
    Waterfall,
)

MIB = 1 << 20
HOSTILE = "</script><script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\">\u2028\u202e'&"


def full() -> Audit:
    """Two ranks of which the second arrives late, two buckets, three counted steps, a finding, warnings, a ring."""
    plain = sample_audits.comm_bound()
    ranks = [
        msgspec.structs.replace(
            rank,
            start_ns=1_753_000_000_000_000_000 + 2_000_000 * place,
            steps=[_with_parts(step) for step in rank.steps],
        )
        for place, rank in enumerate(plain.ranks)
    ]
    return msgspec.structs.replace(
        plain,
        verdict=msgspec.structs.replace(
            plain.verdict, cost_replayed=True, rank_spread=(0.149, 0.152), overlap_backward_wire=0.7
        ),
        ranks=ranks,
        collectives=[_paired(one) for one in plain.collectives],
        recommendation=Recommendation(
            bucket_cap_mb=5.0,
            buckets=9,
            step_ms=381.5,
            gain_ms=18.5,
            gain_ms_ci=(16.25, 20.75),
            contention_ms=2.25,
            late_start_ms=1.5,
        ),
        stragglers=[
            {"rank": 1, "last_share": 0.75, "collectives": 12, "lateness_ms": 3.25, "total_ms": 29.25},
        ],
        clocks=[{"host": "node1", "offset_ms": 0.125, "drift_ppm": 1.5, "residual_ms": 0.01, "pairs": 12}],
        ring_models=[
            RingModel(
                kind="all_reduce",
                group_size=2,
                transfers=12,
                smallest_bytes=20 * MIB,
                largest_bytes=25 * MIB,
                gb_per_s=0.271,
            )
        ],
        findings=[sample_audits.finding(), _straggler()],
        warnings=[Warning(code="ranks-missing", message="2 of 4 ranks are here", source="rank0.json")],
    )


def _with_parts(step: Step) -> Step:
    parts = Waterfall(
        peer_wait_ms=3.5,
        outside_backward_ms=0.0,
        host_starved_ms=1.5,
        device_blocked_ms=0.0,
        late_launch_ms=20.0,
        queue_ms=15.0,
        tail_ms=20.0,
        unattributed_ms=0.0,
    )
    cost = 55.0 + step.step if step.valid else None
    return msgspec.structs.replace(step, waterfall=parts, cost_ms=cost)


def _paired(one: Collective) -> Collective:
    wait = 3.25 if one.gradient and one.rank == 0 else 0.0
    wire = one.duration_ms - wait
    rate = one.bytes / wire / 1e6 if one.bytes and one.gradient else None
    return msgspec.structs.replace(
        one,
        wait_ms=wait,
        wire_ms=wire,
        bus_gb_per_s=rate,
        ready_ms=one.start_ms - 2.5,
        seq=7,
        dtype="float32",
    )


def _straggler() -> Finding:
    return Finding(
        cause="straggler",
        severity="low",
        confidence="medium: the ranks' clocks are fitted",
        steps=[6],
        ranks=[1],
        evidence=["rank 1 arrives last at 9 of 12"],
        fix="balance the input",
        reference="https://example.org/straggler",
    )


def hostile() -> Audit:
    """Every text that a trace, a run or a plug-in's cause can bring along is an attempt to become part of the page."""
    audit = full()
    finding = Finding(
        cause=HOSTILE,
        severity=HOSTILE,
        cost_ms=1.0,
        confidence=HOSTILE,
        steps=[5],
        evidence=[HOSTILE],
        fix=HOSTILE,
        reference="javascript:document.title='owned'",
    )
    texts = {"name": HOSTILE, "group": HOSTILE, "role": HOSTILE, "kind": HOSTILE, "dtype": HOSTILE}
    return msgspec.structs.replace(
        audit,
        verdict=msgspec.structs.replace(
            audit.verdict, reason=HOSTILE, explanation=HOSTILE, next_step=HOSTILE
        ),
        ranks=[
            msgspec.structs.replace(rank, source=HOSTILE, host=HOSTILE, backend=HOSTILE, device_name=HOSTILE)
            for rank in audit.ranks[:1]
        ],
        collectives=[
            msgspec.structs.replace(one, source=HOSTILE, **texts)
            for one in audit.collectives
            if one.rank == 0
        ],
        findings=[finding],
        warnings=[Warning(code=HOSTILE, message=HOSTILE, source=HOSTILE)],
        clocks=[{"host": HOSTILE, "offset_ms": 0.0, "drift_ppm": 0.0, "residual_ms": 0.0, "pairs": 1}],
        run={"schema": "stepscope.run/1", "script": HOSTILE, "versions": {"torch": HOSTILE}},
    )


def large(ranks: int = 8, steps: int = 3, layers: int = 200) -> Audit:
    """A bucket a layer: 2 ms of backward each, whose reduction takes 1.5 ms of which a quarter is waiting."""
    return Audit(
        stepscope="0.1.0",
        verdict=Verdict(
            label="compute-bound",
            reason="hidden",
            host_bound=False,
            cost_share=0.01,
            comm_share=0.09,
            explanation="Communication is hidden.",
        ),
        ranks=[_large_rank(rank, ranks, steps, layers) for rank in range(ranks)],
        collectives=[
            _layer(rank, ranks, step, layer, layers)
            for rank in range(ranks)
            for step in range(steps)
            for layer in range(layers)
        ],
        buckets=[
            Bucket(
                bucket=layer,
                bytes=4 * MIB,
                parameters=1,
                steps=ranks * steps,
                ready_ms=2.0 * layer,
                launch_ms=2.0 * layer + 0.1,
                start_ms=2.0 * layer + 0.2,
                duration_ms=1.5,
                hidden_share=0.875,
                exposed_ms=0.125,
            )
            for layer in range(layers)
        ],
    )


def _large_rank(rank: int, ranks: int, steps: int, layers: int) -> Rank:
    forward, backward = 1.0 * layers, 2.0 * layers
    wall = forward + backward + 20.0
    sums: dict[str, Any] = {
        "comm_ms": 1.5 * layers,
        "compute_ms": wall - 5.0,
        "exposed_ms": 5.0,
        "collectives": layers,
    }
    grad = GradientTotals(
        comm_ms=1.5 * layers,
        hidden_backward_ms=1.5 * layers - 5.0,
        hidden_other_ms=0.0,
        exposed_ms=5.0,
        floor_ms=1.0,
    )
    return Rank(
        rank=rank,
        world_size=ranks,
        backend="nccl",
        device="cuda",
        source=f"rank{rank}.json",
        start_ns=1_753_000_000_000_000_000,
        totals=Totals(unknown_phase=0, **sums),
        steps=[
            Step(
                step=step,
                valid=True,
                start_ms=wall * step,
                wall_ms=wall,
                unknown_phase=0,
                grad=grad,
                cost_ms=4.0,
                timeline=_lanes(wall * step, layers),
                **sums,
            )
            for step in range(steps)
        ],
    )


def _lanes(start: float, layers: int) -> Timeline:
    backward = start + 1.0 * layers
    return Timeline(
        forward=[(start + k, start + k + 0.9) for k in range(layers)],
        backward=[(backward + 2 * k, backward + 2 * k + 1.8) for k in range(layers)],
        optimizer=[(backward + 2 * layers + 1, backward + 2 * layers + 19)],
        exposed=[(backward + 2 * k - 0.2, backward + 2 * k) for k in range(layers)],
    )


def _layer(rank: int, ranks: int, step: int, layer: int, layers: int) -> Collective:
    start = (3.0 * layers + 20.0) * step + layers + 2.0 * layer + 0.5
    return Collective(
        rank=rank,
        source=f"rank{rank}.json",
        step=step,
        kind="all_reduce",
        phase="backward",
        gradient=True,
        role="gradient",
        bytes=4 * MIB,
        dtype="float32",
        group="0",
        group_size=ranks,
        seq=layer,
        stream=20,
        name="ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
        ready_ms=start - 0.3,
        launch_ms=start - 0.2,
        start_ms=start,
        duration_ms=1.5,
        wait_ms=0.375,
        wire_ms=1.125,
        hidden_backward_ms=1.3,
        exposed_ms=0.2,
        bus_gb_per_s=6.524,
    )


def started_apart(audit: Audit, hours: int) -> Audit:
    """The ranks' recordings begin so many hours after each other, as those of unrelated runs do."""
    ranks = [
        msgspec.structs.replace(rank, start_ns=(rank.start_ns or 0) + place * hours * 3600 * 10**9)
        for place, rank in enumerate(audit.ranks)
    ]
    return msgspec.structs.replace(audit, ranks=ranks)
