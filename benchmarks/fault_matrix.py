"""Are injected faults found, and priced right? Every fault, several sizes and bucket sizes, three seeds, as many clean runs.

    python -m benchmarks.fault_matrix --runs /var/tmp/fault-matrix

Each run with a fault has a clean one right after it, with the same flags and seed. Runs that are there are kept: the command
goes on where it was stopped. `--reaudit` judges the recordings anew, `--only NAME,...` takes a part of the matrix. Needs what
`stepscope run --fabric` needs (Linux, root, iproute2), or --fabric none. Writes README.md and study.json into --out.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.fault_matrix_text import page
from stepscope.stats import median

CLEAN = "clean"
WARMUP, STEPS, TRAINED = 4, 6, 24
"""Steps before the recorded ones, recorded ones, and the most that are trained: the rest is timed without a profiler."""


@dataclass(frozen=True)
class Injected:
    """A fault as the workload is told it, and the cause that an audit must name first."""

    name: str
    fault: str
    cause: str
    flags: tuple[str, ...] = ()
    """For the clean run as well."""
    fabric: str | None = None
    """A fabric of the fault's own; the clean run is on the usual one."""
    record: tuple[int, int] = (WARMUP, STEPS)


DEEP_AND_THIN = ("--layers", "24", "--embed", "96", "--heads", "4")
"""A model of many small parameters: a parameter is never split, so only its buckets can be tiny."""

FAULTS = (
    Injected("one-bucket", "one-bucket", "bucket-too-large"),
    Injected("tiny-buckets", "tiny-buckets:mb=0.01", "bucket-too-small", flags=DEEP_AND_THIN),
    Injected("find-unused", "find-unused", "find-unused-parameters"),
    Injected(
        "sync-every-micro-batch",
        "sync-every-micro-batch",
        "accumulation-without-no-sync",
        flags=("--accumulate", "3"),
    ),
    Injected("reduce-by-hand", "reduce-by-hand", "reduced-outside-backward"),
    Injected("clip-before-reduce", "clip-before-reduce", "reduced-outside-backward"),
    Injected("waiting-hook", "waiting-hook", "wait-edge-in-backward"),
    Injected("straggler-forward", "straggler:rank=0,ms=80,phase=forward", "straggler"),
    Injected("straggler-backward", "straggler:rank=1,ms=80,phase=backward", "straggler"),
    Injected("input-skew", "straggler:rank=1,ms=80,phase=input", "input-skew"),
    Injected("metrics", "metrics:count=40", "extra-collectives"),
    Injected("metrics-within", "metrics:count=10,within=true", "extra-collectives"),
    Injected("buffers", "buffers:mb=8", "forward-collectives"),
    Injected("late-parameter", "late-parameter", "late-parameter"),
    Injected("large-embedding", "large-embedding:mb=12", "oversized-last-bucket"),
    Injected("zero-1", "zero-1", "zero1-parameter-broadcast"),
    Injected("slow-link", "none", "link-bound", fabric="400mbit"),
    Injected("no-warm-up", "none", "warm-up-step", record=(1, 1)),
)
PRESETS = ("3m", "10m")
CAPS_MB = ("1", "4")
SEEDS = (0, 1, 2)


@dataclass(frozen=True)
class Run:
    """One cell of the matrix: a fault, or its clean twin."""

    injected: Injected
    preset: str
    cap: str
    seed: int
    clean: bool

    @property
    def name(self) -> str:
        """Of its folder."""
        twin = f"-{CLEAN}" if self.clean else ""
        return f"{self.injected.name}-{self.preset}-{self.cap}mb-{self.seed}{twin}"

    def command(self, folder: Path, fabric: str) -> list[str]:
        """What records it."""
        link = fabric if self.clean or self.injected.fabric is None else self.injected.fabric
        warmup, steps = (WARMUP, STEPS) if self.clean else self.injected.record
        return [
            *(
                sys.executable,
                "-m",
                "stepscope",
                "run",
                "--nproc-per-node",
                "2",
                "--stop",
                "--out",
                str(folder),
            ),
            *(() if fabric == "none" else ("--fabric", link)),
            *("--warmup", str(warmup), "--steps", str(steps), "gpt-faults"),
            *("--fault", "none" if self.clean else self.injected.fault, "--steps", str(TRAINED)),
            *("--preset", self.preset, "--bucket-cap-mb", self.cap, "--seed", str(self.seed)),
            *("--batch-size", "16", *self.injected.flags),
        ]


def main() -> None:
    args = arguments()
    runs = list(matrix(args))
    for number, run in enumerate(runs, 1):
        folder = args.runs / run.name
        if not (folder / "audit.json").exists():
            print(f"{number}/{len(runs)} {run.name}", flush=True)
            record(run, folder, args.fabric)
        elif args.reaudit:
            audit_again(folder)
    cells = [cell(run, args.runs) for run in runs if not run.clean]
    study = {
        "command": ["python", "-m", "benchmarks.fault_matrix", *sys.argv[1:]],
        "fabric": args.fabric,
        "cpus": os.cpu_count(),
        "cells": cells,
    }
    args.out.mkdir(parents=True, exist_ok=True)
    (args.out / "study.json").write_text(json.dumps(study, indent=1) + "\n", encoding="utf-8")
    (args.out / "README.md").write_text(page(study), encoding="utf-8")
    print(page(study))
    print(f"Wrote {args.out}")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--runs", type=Path, required=True, help="folder for the recordings, kept between calls"
    )
    parser.add_argument("--out", type=Path, default=Path("reports/gallery/fault-matrix"))
    parser.add_argument(
        "--fabric", default="2gbit", help="rate of each rank's link, or none (default: 2gbit)"
    )
    parser.add_argument("--only", type=_names, help="faults, by name, with commas between")
    parser.add_argument("--presets", type=_names, default=PRESETS)
    parser.add_argument("--caps", type=_names, default=CAPS_MB, help="bucket sizes in MiB")
    parser.add_argument("--seeds", type=_names, default=tuple(map(str, SEEDS)))
    parser.add_argument("--reaudit", action="store_true", help="judge recordings that are there anew")
    return parser.parse_args()


def _names(text: str) -> tuple[str, ...]:
    return tuple(text.split(","))


def matrix(args: argparse.Namespace) -> Iterator[Run]:
    """Every run, the ones of a seed together, so that a matrix that is stopped holds whole seeds."""
    for seed in args.seeds:
        for preset in args.presets:
            for cap in args.caps:
                for injected in FAULTS:
                    if args.only is None or injected.name in args.only:
                        yield Run(injected, preset, cap, int(seed), clean=False)
                        yield Run(injected, preset, cap, int(seed), clean=True)


def record(run: Run, folder: Path, fabric: str) -> None:
    """Run it; a run that was broken off before its audit is made anew."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.parent.mkdir(parents=True, exist_ok=True)
    subprocess.run(run.command(folder, fabric), check=True, stdout=subprocess.DEVNULL, timeout=300)


def audit_again(folder: Path) -> None:
    """Audit a recording that is there."""
    command = [sys.executable, "-m", "stepscope", "audit", str(folder)]
    subprocess.run(
        [*command, "--json", str(folder / "audit.json"), "--force"], check=True, stdout=subprocess.DEVNULL
    )


def cell(run: Run, runs: Path) -> dict[str, Any]:
    """What was found in one run with a fault, and in its clean twin."""
    twin = Run(run.injected, run.preset, run.cap, run.seed, clean=True)
    broken, clean = (_seen(runs / one.name) for one in (run, twin))
    price = next((f["cost_ms"] for f in broken["findings"] if f["cause"] == run.injected.cause), None)
    return {
        "fault": run.injected.name,
        "cause": run.injected.cause,
        "preset": run.preset,
        "cap_mb": run.cap,
        "seed": run.seed,
        "found": [finding["cause"] for finding in broken["findings"]],
        "price_ms": price,
        "difference_ms": broken["unprofiled_ms"] - clean["unprofiled_ms"],
        "recorded_difference_ms": broken["step_ms"] - clean["step_ms"],
        "step_ms": broken["step_ms"],
        "clean_step_ms": clean["step_ms"],
        "clean_found": [
            {"cause": f["cause"], "share": f["cost_ms"] / clean["step_ms"]} for f in clean["findings"]
        ],
    }


def _seen(folder: Path) -> dict[str, Any]:
    """Findings, and the median step with the profiler and without it; mean over ranks."""
    audit = json.loads((folder / "audit.json").read_text(encoding="utf-8"))
    ranks = audit["ranks"]
    recorded = [
        median([step["wall_ms"] for step in rank["steps"] if step["valid"]] or [rank["steps"][-1]["wall_ms"]])
        for rank in ranks
    ]
    unprofiled = [
        median([time["wall_ms"] for time in rank["step_times"] if time["kind"] == "unprofiled"])
        for rank in audit["run"]["ranks"]
    ]
    return {
        "findings": audit.get("findings", []),
        "step_ms": sum(recorded) / len(recorded),
        "unprofiled_ms": sum(unprofiled) / len(unprofiled),
    }


if __name__ == "__main__":
    main()
