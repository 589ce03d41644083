"""Are injected faults found, and priced right? Every fault at several sizes and bucket sizes, with three seeds.

    python -m benchmarks.fault_matrix --runs /var/tmp/fault-matrix

Every run with a fault has a clean one, with the same flags and seed, right before or after it; two faults share one. Runs
that are there are kept: the command goes on where it was stopped. `--reaudit` records nothing and judges what is there
anew; `--only NAME,...` takes some faults. Needs what `stepscope run --fabric` needs (Linux, root, iproute2), or --fabric none;
what `held.py` needs, or --share none; and about an hour of a quiet machine. Writes README.md and study.json into --out.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import mean
from typing import Any

from benchmarks.fault_matrix_plan import FAULTS, SEEDS, SETTINGS, STEPS, WARMUP, Pair, Run, in_order, pairs
from benchmarks.fault_matrix_text import page
from benchmarks.held import remove_groups
from stepscope.stats import median

AUDIT = "audit.json"


def main() -> None:
    args = arguments()
    faults = [injected for injected in FAULTS if args.only is None or injected.name in args.only]
    wanted = list(pairs(faults, SETTINGS, args.seeds))
    runs = in_order(wanted)
    if args.reaudit:
        for run in runs:
            audit_again(args.runs / run.name)
    else:
        record_missing([run for run in runs if not _is_there(run, args.runs)], args)
    judged = [
        pair for pair in wanted if _is_there(pair.broken, args.runs) and _is_there(pair.clean, args.runs)
    ]
    study = study_of(judged, args)
    args.out.mkdir(parents=True, exist_ok=True)
    (args.out / "study.json").write_text(json.dumps(study, indent=1) + "\n", encoding="utf-8")
    (args.out / "README.md").write_text(page(study), encoding="utf-8")
    print(page(study))
    print(f"Wrote {args.out}")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--runs", type=Path, required=True, help="folder for the recordings, kept between calls")
    add("--out", type=Path, default=Path("reports/gallery/fault-matrix"))
    add("--fabric", default="600mbit", help="rate of each rank's link, or none (default: 600mbit)")
    add("--share", default="0.4", help="of a CPU for each rank's training thread, or none (default: 0.4)")
    add("--only", type=lambda text: text.split(","), help="faults, by name, with commas between")
    add("--seeds", type=lambda text: list(map(int, text.split(","))), default=SEEDS)
    add("--reaudit", action="store_true", help="record nothing; judge anew what is there")
    return parser.parse_args()


def record_missing(missing: Sequence[Run], args: argparse.Namespace) -> None:
    """Make the runs that are not there, and say how far it is."""
    started = time.monotonic()
    for number, run in enumerate(missing):
        left = (time.monotonic() - started) / number * (len(missing) - number) if number else None
        to_go = "" if left is None else f", {left / 60:.0f} minutes left"
        print(f"{number + 1} of {len(missing)}: {run.name}{to_go}", flush=True)
        record(run, args.runs / run.name, args)


def record(run: Run, folder: Path, args: argparse.Namespace) -> None:
    """Run it; a run that was broken off before its audit is made anew."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.parent.mkdir(parents=True, exist_ok=True)
    command = [
        sys.executable,
        "-m",
        "stepscope",
        "run",
        "--out",
        str(folder),
        *run.flags(args.fabric, args.share),
    ]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, timeout=300)
    if args.share != "none":
        remove_groups()


def audit_again(folder: Path) -> None:
    """Audit a recording, if it is there, into its own folder."""
    if (folder / AUDIT).exists():
        command = [sys.executable, "-m", "stepscope", "audit", str(folder), "--force"]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=300)


def study_of(judged: Sequence[Pair], args: argparse.Namespace) -> dict[str, Any]:
    """All figures of the matrix."""
    clean_runs = list(dict.fromkeys(pair.clean for pair in judged))
    return {
        "command": ["python", "-m", "benchmarks.fault_matrix", *sys.argv[1:]],
        "fabric": args.fabric,
        "share": args.share,
        "cpus": os.cpu_count(),
        "record": {"warmup": WARMUP, "steps": STEPS},
        "settings": [list(setting.flags) for setting in SETTINGS],
        "faults": [
            {"name": f.name, "fault": f.fault, "cause": f.cause, "flags": f.flags, "fabric": f.fabric}
            | {"record": f.record, "apart": f.apart}
            for f in dict.fromkeys(pair.broken.injected for pair in judged)
        ],
        "clean": [clean_cell(run, args.runs) for run in clean_runs],
        "cells": [cell(pair, args.runs) for pair in judged],
    }


def cell(pair: Pair, runs: Path) -> dict[str, Any]:
    """What was found in one run with a fault, and how much longer its step is than the clean run's."""
    broken, clean = seen(runs / pair.broken.name), seen(runs / pair.clean.name)
    fault = pair.broken.injected
    prices = [finding["cost_ms"] for finding in broken["findings"] if finding["cause"] == fault.cause]
    return _place(pair.broken) | {
        "fault": fault.name,
        "cause": fault.cause,
        "clean": pair.clean.name,
        "found": [finding["cause"] for finding in broken["findings"]],
        "price_ms": sum(prices) if prices else None,
        "step_ms": broken["step_ms"],
        "clean_step_ms": clean["step_ms"],
        "difference_ms": broken["step_ms"] - clean["step_ms"],
        "beside_compute_ms": broken["beside_compute_ms"] - clean["beside_compute_ms"],
        "unprofiled_difference_ms": broken["unprofiled_ms"] - clean["unprofiled_ms"],
    }


def clean_cell(run: Run, runs: Path) -> dict[str, Any]:
    """What was found in a clean run, as a share of its step."""
    found = seen(runs / run.name)
    findings = [{"cause": f["cause"], "share": f["cost_ms"] / found["step_ms"]} for f in found["findings"]]
    times = {"difference_ms": found["step_ms"], "beside_compute_ms": found["beside_compute_ms"]}
    return _place(run) | {"run": run.name, "times": times, "found": findings}


def _place(run: Run) -> dict[str, Any]:
    return {
        "setting": run.setting.name,
        "flags": " ".join(run.injected.flags),
        "seed": run.seed,
    }


def seen(folder: Path) -> dict[str, Any]:
    """Findings, and the median step with the profiler, what of it was no compute, and without the profiler; over ranks."""
    audit = json.loads((folder / AUDIT).read_text(encoding="utf-8"))
    steps = [[step for step in rank["steps"] if step["valid"]] or rank["steps"] for rank in audit["ranks"]]
    unprofiled = [
        [time["wall_ms"] for time in rank["step_times"] if time["kind"] == "unprofiled"]
        for rank in audit["run"]["ranks"]
    ]
    return {
        "findings": audit.get("findings", []),
        "step_ms": mean(median([step["wall_ms"] for step in mine]) for mine in steps),
        "beside_compute_ms": mean(
            median([step["wall_ms"] - step["compute_ms"] for step in mine]) for mine in steps
        ),
        "unprofiled_ms": mean(map(median, unprofiled)),
    }


def _is_there(run: Run, runs: Path) -> bool:
    return (runs / run.name / AUDIT).exists()


if __name__ == "__main__":
    main()
