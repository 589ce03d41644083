"""A picture of every cause that a simulated job shows, and of the healthy job: `python -m benchmarks.cause_pictures`.

Each job has one cause put into it (`stepscope_workloads.simulate`), is audited as any traces are, and its typical step is
drawn; the page beside the pictures says what the audit found first. A third of a minute.
"""

from __future__ import annotations

import argparse
import gzip
import json
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from stepscope.audit.build import audit
from stepscope.audit.result import Audit, Rank, Step
from stepscope.trace.classify import classify
from stepscope.trace.reader import read
from stepscope_reports import charts, figures
from stepscope_workloads.simulate import Fabric, Host, Job, Layer, Model, Simulation, parse, uniform
from stepscope_workloads.simulate.job import MIB, US

SLOW_LINK = Fabric(gb_per_s=15.0)
SLOW_HOST = Host(operator=40 * US, python=60 * US)
SMALL_KERNELS = uniform(layers=12, kernel=120 * US, backward=200 * US, parameters=2_000_000)
MANY_LAYERS = Model(
    tuple(
        Layer("layer", (120 * US,) * 2, (200 * US,) * 2, (size, size // 1000))
        for size in (100_000, 20_000) * 12
    )
)
"""Messages that differ in size, for latency to be told from bandwidth."""
LONG_KERNELS = uniform(layers=4, kernel=600 * US, backward=1200 * US, kernels=1, parameters=400_000)
UNEVEN = Model(
    (Layer("layer", (400 * US,) * 2, (1500 * US,) * 2, (500_000, 500)),) * 4
    + (Layer("layer", (400 * US,) * 2, (300 * US,) * 2, (8_000_000, 8_000)),) * 4
)
"""The gradients that come first are many and quick to make: their transfers queue."""


@dataclass(frozen=True)
class Shown:
    """A job with one cause in it, as the simulator is told, and whose steps to draw."""

    cause: str
    setting: str = ""
    job: dict[str, Any] = field(default_factory=dict)
    ranks: tuple[int, ...] = (0,)


SHOWN = (
    Shown("healthy", job={"fabric": SLOW_LINK}),
    Shown("bucket-too-large", job={"fabric": SLOW_LINK}),
    Shown("bucket-too-small", ":cap_kb=1", {"fabric": Fabric(alpha=300 * US), "model": MANY_LAYERS}),
    Shown("late-parameter", job={"fabric": SLOW_LINK}),
    Shown("wait-edge-in-backward", job={"fabric": SLOW_LINK}),
    Shown("host-sync", ":where=backward,times=8", {"host": SLOW_HOST, "model": SMALL_KERNELS}),
    Shown(
        "grad-clip-sync",
        job={
            "host": Host(operator=150 * US),
            "model": LONG_KERNELS,
            "fabric": Fabric(alpha=US),
            "clips": True,
        },
    ),
    Shown("extra-collectives", ":count=8", {"fabric": Fabric(alpha=400 * US, gb_per_s=15.0)}),
    Shown("forward-collectives", ":elements=12_000_000", {"fabric": SLOW_LINK}),
    Shown("pageable-copy", ":ms=6", {"fabric": SLOW_LINK}),
    Shown("launch-bound", ":operator_us=1000", {"fabric": SLOW_LINK}),
    Shown("single-hardware-queue", job={"model": UNEVEN, "fabric": Fabric(gb_per_s=20)}),
    Shown("collective-on-compute-stream", job={"fabric": SLOW_LINK}),
    Shown("blocking-environment", job={"fabric": SLOW_LINK}),
    Shown("contention", ":factor=2.5", {"fabric": SLOW_LINK}),
    Shown("fsdp-prefetch", job={"sharding": "fsdp", "model": uniform(layers=12, parameters=8_000_000)}),
    Shown("straggler", ":rank=1,ms=6,phase=backward", {"fabric": SLOW_LINK}, ranks=(0, 1)),
    Shown("input-skew", ":rank=1,ms=8", {"fabric": SLOW_LINK}, ranks=(0, 1)),
    Shown("link-bound", job={"fabric": SLOW_LINK}),
)


def main() -> None:
    """Simulate, audit and draw each of them."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, default=Path("reports/gallery/causes"))
    out = parser.parse_args().out
    out.mkdir(parents=True, exist_ok=True)
    rows = []
    for shown in SHOWN:
        audited = audit_of(shown)
        picture = charts.timeline(audited, shown=steps_of(audited, shown.ranks))
        assert picture is not None
        (out / f"{shown.cause}.svg").write_text(charts.svg(picture), encoding="utf-8")
        rows.append(row(shown, audited))
    (out / "README.md").write_text(page(rows), encoding="utf-8")
    print(f"Wrote {out}")


def audit_of(shown: Shown) -> Audit:
    """The audit of the simulated job's traces."""
    causes = () if shown.cause == "healthy" else (parse(shown.cause + shown.setting),)
    job = Job(**{"ranks": 2, "bucket_cap": 25 * MIB, "causes": causes, **shown.job})
    with tempfile.TemporaryDirectory() as folder:
        recordings = []
        for rank, document in enumerate(Simulation(job).documents()):
            path = Path(folder, f"rank{rank}.pt.trace.json.gz")
            path.write_bytes(gzip.compress(json.dumps(document).encode(), 1))
            recordings.append(classify(read(path)))
        return audit(recordings)


def steps_of(audited: Audit, ranks: Sequence[int]) -> list[tuple[Rank, Step]]:
    """The typical step on each of those ranks."""
    typical = figures.typical_step(audited)
    assert typical is not None
    number = typical[1].step
    return [
        (rank, step)
        for rank in audited.ranks
        if rank.rank in ranks
        for step in rank.steps
        if step.step == number
    ]


def row(shown: Shown, audited: Audit) -> str:
    """What the audit says of it."""
    first = audited.findings[0] if audited.findings else None
    found = f"{first.cause}, {first.cost_ms:,.2f} ms a step" if first and first.cost_ms else "nothing"
    return f"| [{shown.cause}]({shown.cause}.svg) | {audited.verdict.label} | {found} |"


def page(rows: Sequence[str]) -> str:
    """The page beside the pictures."""
    return "\n".join(
        (
            "# Causes, one picture each",
            "",
            "Simulated device traces with one cause put into each job, audited as any traces are. Made by:",
            "",
            "    python -m benchmarks.cause_pictures",
            "",
            "| put in | verdict | found first |",
            "|---|---|---|",
            *rows,
            "",
        )
    )


if __name__ == "__main__":
    main()
