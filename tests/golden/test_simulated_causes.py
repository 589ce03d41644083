"""Detectors against simulated jobs into which one cause was put: it is found first, at the simulator's own price.

The price is what the mean step gets shorter by when that cause alone is taken away (`truth()["causes"]`). Every cause comes
in several sizes, on two, four and eight ranks, with three draws of the kernels' times each; the same jobs without it are
clean.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from device_cases import recorded, simulated
from stepscope.audit.case import Case, Price
from stepscope.audit.causes import find_causes
from stepscope.audit.causes.finding import Description, priced
from stepscope.audit.result import Finding
from stepscope_workloads.simulate import Fabric, Host, Job, Layer, Model, Simulation, parse, uniform
from stepscope_workloads.simulate.job import US

SEEDS = (0, 1, 2)
RANKS = (2, 4, 8)
NEAR = 0.2
SMALL_SHARE = 0.03
"""A finding of less of the step says nothing of a clean job."""

SLOW_HOST = Host(operator=40 * US, python=60 * US)
"""It takes the host nearly as long to launch this model's kernels as it takes the device to run them."""
LIGHT = uniform(layers=12, kernel=120 * US, backward=200 * US, parameters=2_000_000)
LONG_KERNELS = uniform(layers=4, kernel=600 * US, backward=1200 * US, kernels=1, parameters=400_000)
SLOW_OPERATORS = Host(operator=100 * US)


def layer(backward: int, parameters: int) -> Layer:
    return Layer("layer", (400 * US,) * 2, (backward,) * 2, (parameters, parameters // 1000))


UNEVEN = Model((layer(1500 * US, 500_000),) * 4 + (layer(300 * US, 8_000_000),) * 4)
"""The first gradients to come are many and quick to make: their transfers queue."""

SETTINGS: dict[str, list[tuple[str, dict[str, Any]]]] = {
    "host-sync": [
        ("host-sync:where=backward,times=8", {"host": SLOW_HOST, "model": LIGHT}),
        ("host-sync:where=forward,times=8", {"host": SLOW_HOST, "model": LIGHT}),
        ("host-sync:where=between", {"host": SLOW_HOST, "model": LIGHT}),
    ],
    "grad-clip-sync": [
        (
            "grad-clip-sync",
            {"host": SLOW_OPERATORS, "model": LONG_KERNELS, "fabric": Fabric(alpha=US), "clips": True},
        ),
        (
            "grad-clip-sync",
            {
                "host": Host(operator=150 * US),
                "model": LONG_KERNELS,
                "fabric": Fabric(alpha=US),
                "clips": True,
            },
        ),
    ],
    "pageable-copy": [("pageable-copy:ms=1", {}), ("pageable-copy", {}), ("pageable-copy:ms=6", {})],
    "launch-bound": [
        ("launch-bound:operator_us=300", {}),
        ("launch-bound", {}),
        ("launch-bound:operator_us=1500", {}),
    ],
    "single-hardware-queue": [
        ("single-hardware-queue", {"model": UNEVEN, "fabric": Fabric(gb_per_s=30)}),
        ("single-hardware-queue", {"model": UNEVEN, "fabric": Fabric(gb_per_s=20)}),
    ],
    "collective-on-compute-stream": [
        ("collective-on-compute-stream", {}),
        ("collective-on-compute-stream", {"fabric": Fabric(gb_per_s=20)}),
    ],
    "wait-edge-in-backward": [
        ("wait-edge-in-backward", {}),
        ("wait-edge-in-backward", {"fabric": Fabric(gb_per_s=20)}),
    ],
    "blocking-environment": [
        ("blocking-environment", {}),
        ("blocking-environment", {"fabric": Fabric(gb_per_s=20)}),
    ],
    "contention": [("contention", {}), ("contention:factor=1.6", {}), ("contention:factor=2.5", {})],
    "straggler": [
        ("straggler:by=compute,phase=forward", {}),
        ("straggler:by=compute,phase=backward,rank=1,ms=8", {}),
        ("straggler:by=host,phase=forward,rank=1", {}),
        ("straggler:by=host,phase=backward,rank=1,ms=20", {}),
        ("straggler:by=host,phase=update,rank=1,ms=40", {}),
        ("straggler:by=compute,phase=update,rank=1,ms=8", {}),
    ],
    "input-skew": [("input-skew", {}), ("input-skew:rank=1,ms=12", {})],
    "fsdp-prefetch": [
        ("fsdp-prefetch", {"sharding": "fsdp"}),
        ("fsdp-prefetch", {"sharding": "fsdp", "model": uniform(layers=12, parameters=8_000_000)}),
    ],
}
JOBS = [
    (cause, Job(ranks=ranks, seed=seed, causes=(parse(text),), **settings))
    for cause, rows in SETTINGS.items()
    for text, settings in rows
    for ranks, seed in zip(RANKS, SEEDS, strict=True)
]


def findings(case: Case) -> list[Finding]:
    """What the detectors find, the costliest first; none of them fails."""
    found, failed = find_causes(case)
    assert failed == []
    return found


def named(job: Job) -> str:
    return f"{job.causes[0]}-{job.ranks} ranks"


@pytest.mark.parametrize(("cause", "job"), JOBS, ids=lambda one: named(one) if isinstance(one, Job) else "")
def test_the_cause_that_was_put_in_is_found_first_at_its_price(cause: str, job: Job, tmp_path: Path) -> None:
    simulation = Simulation(job)
    known = simulation.truth()["causes"][0]["price_ns"] / 1e6
    first = findings(simulated(simulation, tmp_path))[0]
    assert first.cause == cause
    assert first.cost_ms == pytest.approx(known, rel=NEAR)
    late = getattr(job.causes[0], "rank", None)
    assert first.ranks == (list(range(job.ranks)) if late is None else [late])


@pytest.mark.parametrize("ranks", [2, 4])
@pytest.mark.parametrize("how", ["by=host,ms=40", "by=compute,ms=8"])
def test_a_rank_that_is_late_after_the_last_collective_costs_what_the_others_wait_in_the_next_step(
    how: str, ranks: int, tmp_path: Path
) -> None:
    """Its own step alone would be shorter, and the mean over ranks would be so by a half or a quarter of the price."""
    simulation = Simulation(Job(ranks=ranks, causes=(parse(f"straggler:phase=update,rank=1,{how}"),)))
    known = simulation.truth()["causes"][0]["price_ns"] / 1e6
    first = findings(simulated(simulation, tmp_path))[0]
    assert (first.cause, first.ranks) == ("straggler", [1])
    assert first.cost_ms == pytest.approx(known, rel=0.02)


@pytest.mark.parametrize("job", [job for _, job in JOBS if job.seed == 0], ids=named)
def test_the_same_job_without_it_is_clean(job: Job, tmp_path: Path) -> None:
    case = simulated(Simulation(replace(job, causes=())), tmp_path)
    assert case.step_ms is not None
    assert [f for f in findings(case) if (f.cost_ms or 0) > SMALL_SHARE * case.step_ms] == []


@pytest.mark.parametrize(
    ("place", "caller"),
    [
        ("forward", "model.py(112): check_activations"),
        ("between", "train.py(47): check_loss"),
        ("backward", "train.py(52): gradient_hook"),
    ],
)
def test_with_stacks_a_finding_names_the_function_that_reads(place: str, caller: str, tmp_path: Path) -> None:
    job = Job(host=SLOW_HOST, model=LIGHT, causes=(parse(f"host-sync:where={place}"),))
    for with_stack in (False, True):
        found = findings(simulated(Simulation(replace(job, with_stack=with_stack)), tmp_path))[0]
        assert found.cause == "host-sync"
        assert (f" called in {caller}: " in found.evidence[0]) is with_stack


@pytest.mark.parametrize(
    ("text", "rank", "what"),
    [
        ("straggler:by=compute,phase=backward,rank=1", 1, "its kernels run longer on the device"),
        ("straggler:by=host,phase=forward,rank=2", 2, "its main thread spends"),
        ("straggler:by=host,phase=backward,rank=1,ms=20", 1, "its autograd thread spends 20.0 ms"),
        ("input-skew:rank=3", 3, "its main thread spends"),
    ],
)
def test_who_is_late_on_a_gpu_is_named_with_what_is_slow(
    text: str, rank: int, what: str, tmp_path: Path
) -> None:
    first = findings(simulated(Simulation(Job(ranks=4, causes=(parse(text),))), tmp_path))[0]
    assert first.ranks == [rank]
    assert what in first.evidence[1]


RUNS_AHEAD = Host(reads_loss=False)


def test_one_read_that_keeps_the_host_from_running_ahead_costs_what_the_device_loses(tmp_path: Path) -> None:
    """Without it the host's window would be a millisecond; the device would still take as long, and it is what counts."""
    job = Job(host=RUNS_AHEAD, steps=6, causes=(parse("host-sync:where=backward"),))
    assert findings(simulated(Simulation(job), tmp_path)) == []


def test_how_severe_a_cause_is_depends_on_the_step_of_the_device(tmp_path: Path) -> None:
    """3 % of the device's step is no tenth of a window on a host that runs ahead."""
    simulation = Simulation(Job(host=RUNS_AHEAD, steps=6))
    case = simulated(simulation, tmp_path)
    step_ms = simulation.truth()["step_ns"] / 1e6
    assert case.step_ms == pytest.approx(step_ms, rel=0.01)
    price = Price(ms=0.029 * step_ms, by_step={0: 0.029 * step_ms})
    (found,) = priced(case, price, Description("a-cause", "high: told so", [], "a fix", "a source"))
    assert found.severity == "low"


@pytest.mark.parametrize("name", ["wait-edge-in-backward", "pageable-copy"])
def test_a_host_that_runs_ahead_changes_no_price(name: str, tmp_path: Path) -> None:
    simulation = Simulation(Job(host=RUNS_AHEAD, steps=6, causes=(parse(name),)))
    first = findings(simulated(simulation, tmp_path))[0]
    assert first.cause == name
    assert first.cost_ms == pytest.approx(simulation.truth()["causes"][0]["price_ns"] / 1e6, rel=0.05)


def test_a_starved_gpu_is_launch_bound_and_no_networks_fault(shared: Path) -> None:
    """A 222 ms step with 39 ms of kernels; most of it would go with a host that launches faster."""
    found = findings(recorded(shared / "traces" / "hta_resnet_ddp_a100"))
    assert [one.cause for one in found] == ["launch-bound"]
    assert found[0].cost_ms == pytest.approx(175, abs=8)
