"""The analyser against jobs whose every figure is known because they were simulated, to the nanosecond.

Audits carry milliseconds as floats, so a figure is compared after rounding to ns. Where host clocks drift, a rank's clock
and true time differ by the drift, and so may figures.
"""

from __future__ import annotations

import gzip
import json
import random
from pathlib import Path
from typing import Any

import pytest

from stepscope.audit.build import audit
from stepscope.audit.result import Audit
from stepscope.trace.classify import classify
from stepscope.trace.reader import read
from stepscope_workloads.simulate import CAUSES, Clock, Fabric, Host, Job, Simulation, parse, uniform
from stepscope_workloads.simulate.job import MIB, MS, US

OVERLAP = ("comm", "hidden_backward", "hidden_other", "exposed")
WIRE = ("wire", "wire_hidden_backward", "wire_hidden_other", "wire_exposed")
BEFORE_THE_END = ("peer_wait", "outside_backward", "host_starved", "device_blocked")
AFTER_BACKWARD = ("late_launch", "queue", "tail")

Figures = dict[tuple[Any, ...], Any]


def audited(job: Job, folder: Path) -> tuple[Audit, dict[str, Any]]:
    simulation = Simulation(job)
    recordings = []
    for rank, document in enumerate(simulation.documents()):
        path = folder / f"rank{rank}.pt.trace.json.gz"
        path.write_bytes(gzip.compress(json.dumps(document).encode(), 1))
        recordings.append(classify(read(path)))
    return audit(recordings), simulation.truth()


def ns(milliseconds: float | None) -> int | None:
    return None if milliseconds is None else round(milliseconds * 1e6)


def measured(found: Audit, part: str, names: tuple[str, ...]) -> Figures:
    """Figures of every rank and step; part: "" for the step's own, else "grad" or "waterfall"."""
    return {
        (rank.rank, step.step, name): ns(getattr(getattr(step, part) if part else step, f"{name}_ms"))
        for rank in found.ranks
        for step in rank.steps
        for name in names
    }


def known(truth: dict[str, Any], part: str, names: tuple[str, ...]) -> Figures:
    figures: Figures = {}
    for rank in truth["ranks"]:
        for step in rank["steps"]:
            own = step if not part else step["waterfall_ns" if part == "waterfall" else part]
            for name in names:
                figures[rank["rank"], step["step"], name] = own[name if part == "waterfall" else f"{name}_ns"]
    return figures


def assert_same(found: Audit, truth: dict[str, Any]) -> None:
    """Everything but how the time after backward is divided, whose sum is compared."""
    for part, names in (
        ("", (*OVERLAP, "wall", "compute", "backward_compute")),
        ("grad", (*OVERLAP, *WIRE)),
        ("waterfall", (*BEFORE_THE_END, "unattributed")),
    ):
        assert measured(found, part, names) == known(truth, part, names)
    sums = [
        {key[:2]: sum(figures[*key[:2], name] or 0 for name in AFTER_BACKWARD) for key in figures}
        for figures in (
            measured(found, "waterfall", AFTER_BACKWARD),
            known(truth, "waterfall", AFTER_BACKWARD),
        )
    ]
    assert sums[0] == sums[1]
    for rank in found.ranks:
        for step in rank.steps:
            assert step.waterfall is None or (step.waterfall.unattributed_ms or 0.0) <= 0.02 * step.exposed_ms
    assert collectives(found) == expected_collectives(truth)
    assert shares(found) == pytest.approx(known_shares(truth), abs=1e-12)
    assert all(step.valid for rank in found.ranks for step in rank.steps)
    assert found.warnings == []


def shares(found: Audit) -> Figures:
    return {
        (rank.rank, step.step, name): getattr(step, name)
        for rank in found.ranks
        for step in rank.steps
        for name in ("device_busy_share", "host_starved_share", "collectives")
    }


def known_shares(truth: dict[str, Any]) -> Figures:
    return {
        (rank["rank"], step["step"], name): value
        for rank in truth["ranks"]
        for step in rank["steps"]
        for name, value in (
            ("device_busy_share", step["device_busy_ns"] / step["wall_ns"]),
            ("host_starved_share", step["host_starved_ns"] / step["wall_ns"]),
            ("collectives", step["collectives"]),
        )
    }


def collectives(found: Audit) -> dict[tuple[int | None, int | None], tuple[Any, ...]]:
    return {
        (one.rank, one.seq): (
            one.step,
            one.kind,
            one.phase,
            one.gradient,
            one.bytes,
            ns(one.wait_ms),
            ns(one.wire_ms),
            ns(one.start_ms),
            one.bus_gb_per_s and pytest.approx(one.bus_gb_per_s),
        )
        for one in found.collectives
    }


def expected_collectives(truth: dict[str, Any]) -> dict[tuple[int | None, int | None], tuple[Any, ...]]:
    return {
        (rank["rank"], one["sequence"]): (
            one["step"],
            one["kind"],
            one["phase"],
            one["gradient"],
            one["bytes"],
            one["wait_ns"][rank["rank"]] if "wait_ns" in one else None,
            one["wire_ns"] if "wait_ns" in one else None,
            one["start_ns"][rank["rank"]],
            one["bus_gb_per_s"] if "wait_ns" in one else None,
        )
        for rank in truth["ranks"]
        for one in truth["collectives"]
    }


FINE = uniform(layers=6, kernel=30 * US, kernels=6, backward=70 * US, parameters=2_000_000)
"""Many small kernels: the host hardly keeps ahead."""


@pytest.mark.parametrize("sharding", ["ddp", "fsdp"])
@pytest.mark.parametrize("name", ["", *CAUSES])
def test_overlap_waits_and_waterfall_of_every_cause_are_exact(
    name: str, sharding: str, tmp_path: Path
) -> None:
    if sharding == "fsdp" and name == "contention":
        pytest.skip("contention is simulated for DDP only")
    causes = (parse(name),) if name else ()
    job = Job(ranks=4, steps=2, sharding=sharding, causes=causes, fabric=Fabric(gb_per_s=15.0), seed=3)
    assert_same(*audited(job, tmp_path))


@pytest.mark.parametrize("where", ["forward", "between", "backward"])
@pytest.mark.parametrize("reads_loss", [True, False])
def test_a_host_that_hardly_keeps_ahead_is_measured_exactly(
    where: str, reads_loss: bool, tmp_path: Path
) -> None:
    host = Host(operator=15 * US, python=120 * US, reads_loss=reads_loss)
    cause = parse(f"host-sync:where={where},times=3")
    job = Job(model=FINE, ranks=3, steps=3, host=host, causes=(cause,), bucket_cap=5 * MIB, seed=5)
    assert_same(*audited(job, tmp_path))


@pytest.mark.parametrize("seed", [*range(20), 34])
def test_jobs_made_by_chance_are_measured_exactly(seed: int, tmp_path: Path) -> None:
    """In job 34 backward's first gather is on the wire while the device still copies the batch."""
    assert_same(*audited(job_by_chance(seed), tmp_path))


def job_by_chance(seed: int) -> Job:
    draw = random.Random(seed)
    sharding = draw.choice(["ddp", "ddp", "fsdp"])
    names = draw.sample([name for name in CAUSES if sharding == "ddp" or name != "contention"], k=3)
    return Job(
        model=uniform(
            layers=draw.randint(1, 6),
            kernel=draw.randint(20, 500) * US,
            kernels=draw.randint(1, 4),
            backward=draw.randint(20, 900) * US,
            parameters=draw.randint(1, 5) * 1_000_003,
        ),
        ranks=draw.randint(2, 5),
        ranks_per_host=draw.randint(1, 3),
        clocks=tuple(Clock(draw.randint(-5 * MS, 5 * MS)) for _ in range(2)),
        steps=draw.randint(1, 3),
        sharding=sharding,
        fabric=Fabric(alpha=draw.randint(0, 30) * US, gb_per_s=draw.uniform(2.0, 100.0)),
        host=Host(operator=draw.randint(1, 40) * US, run_ahead=draw.choice([5, 50, 1024])),
        bucket_cap=draw.randint(1, 40) * MIB,
        first_bucket=draw.choice([None, MIB]),
        jitter=draw.choice([0.0, 0.02, 0.3]),
        gap=draw.choice([0, 900, 1 * US, 5 * US]),
        causes=tuple(parse(name) for name in names),
        sync_events=draw.choice([True, False]),
        with_stack=draw.choice([True, False]),
        seed=seed,
    )


def test_the_time_after_backward_is_divided_exactly_where_no_rank_waits(tmp_path: Path) -> None:
    for k, names in enumerate(
        [(), ("link-bound",), ("launch-bound",), ("bucket-too-small",), ("extra-collectives",)]
    ):
        folder = tmp_path / str(k)
        folder.mkdir()
        job = Job(ranks=3, steps=2, jitter=0.0, causes=tuple(parse(name) for name in names))
        found, truth = audited(job, folder)
        for part, figures in (("waterfall", AFTER_BACKWARD), ("grad", ("floor", "excess"))):
            assert measured(found, part, figures) == known(truth, part, figures)


@pytest.mark.parametrize("phase", ["forward", "backward"])
def test_what_a_straggler_delays_is_not_launched_late(phase: str, tmp_path: Path) -> None:
    job = Job(ranks=4, steps=2, causes=(parse(f"straggler:rank=2,ms=8,phase={phase}"),))
    found, truth = audited(job, tmp_path)
    assert measured(found, "waterfall", AFTER_BACKWARD) == known(truth, "waterfall", AFTER_BACKWARD)


@pytest.mark.parametrize("seed", range(6))
def test_the_floor_is_each_ranks_own(seed: int, tmp_path: Path) -> None:
    job = Job(ranks=3, steps=2, fabric=Fabric(gb_per_s=random.Random(seed).uniform(3, 60)), seed=seed)
    found, truth = audited(job, tmp_path)
    assert measured(found, "grad", ("floor", "excess")) == known(truth, "grad", ("floor", "excess"))


def test_shares_are_of_the_devices_step_where_the_host_runs_ahead(tmp_path: Path) -> None:
    """Its window of under a millisecond says nothing of a step that takes the device twenty."""
    job = Job(ranks=2, steps=5, host=Host(reads_loss=False), fabric=Fabric(gb_per_s=3.0))
    found, truth = audited(job, tmp_path)
    steady = [step for rank in truth["ranks"] for step in rank["steps"][1:]]
    step, cost = (sum(one[name] for one in steady) / len(steady) / 1e6 for name in ("step_ns", "cost_ns"))
    assert all(one.wall_ms < 0.1 * step for rank in found.ranks for one in rank.steps)
    assert [one.step_ms for rank in found.ranks for one in rank.steps] == pytest.approx([step] * 10, rel=0.01)
    assert found.verdict.step_ms == pytest.approx(step, rel=0.005)
    assert found.verdict.cost_share == pytest.approx(cost / step, rel=0.005)
    assert found.verdict.label == "comm-bound"


def test_clocks_of_other_hosts_are_found_in_offset_and_drift(tmp_path: Path) -> None:
    clocks = (Clock(50 * US, 20.0), Clock(-1300 * US, -15.0), Clock(900 * MS, 40.0))
    found, _ = audited(Job(ranks=6, ranks_per_host=2, clocks=clocks, steps=4), tmp_path)
    fitted = {clock["host"]: clock for clock in found.clocks}
    assert set(fitted) == {"node1", "node2"}
    for host, clock in (("node1", clocks[1]), ("node2", clocks[2])):
        assert fitted[host]["offset_ms"] == pytest.approx((clock.offset - clocks[0].offset) / 1e6, abs=0.002)
        assert fitted[host]["drift_ppm"] == pytest.approx(clock.drift - clocks[0].drift, abs=0.1)
        assert fitted[host]["residual_ms"] < 1e-5


def test_the_straggler_is_who_the_truth_says(tmp_path: Path) -> None:
    found, truth = audited(Job(ranks=4, causes=(parse("straggler:rank=2,ms=8"),)), tmp_path)
    expected = truth["stragglers"][0]
    assert found.stragglers[0]["rank"] == expected["rank"] == 2
    assert found.stragglers[0]["collectives"] == expected["joined"]
    assert found.stragglers[0]["last_share"] == expected["last"] / expected["joined"]
    assert ns(found.stragglers[0]["total_ms"]) == expected["total_ns"]


def test_a_bucket_is_ready_only_when_its_late_parameter_is(tmp_path: Path) -> None:
    found, truth = audited(Job(ranks=2, steps=2, jitter=0.0, causes=(parse("late-parameter"),)), tmp_path)
    assert measured(found, "grad", ("floor", "excess")) == known(truth, "grad", ("floor", "excess"))
