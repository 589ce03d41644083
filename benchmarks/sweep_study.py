"""Does one recorded run predict the other bucket caps, and does a sweep find the best one? `python -m benchmarks.sweep_study`.

    python -m benchmarks.sweep_study --runs /var/tmp/sweep-study

Sweeps five bucket caps on an emulated fabric, at three rates, on two and on four ranks, each held to the same share of a CPU, and
once as it is, on two ranks. Every cap is predicted from the first run at 25 MiB, and held against what was measured. Sweeps go
on where they were stopped. Writes README.md, study.json and a picture for each number of ranks into --out, after each sweep, so
that there is a page of what was measured so far. Needs root, iproute2 and the cpu controller of cgroup v1; about 40 minutes on
two cores that are otherwise idle.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.held import remove_groups
from benchmarks.sweep_study_chart import pictures
from benchmarks.sweep_study_text import page
from stepscope.predict.case import read_case
from stepscope.predict.whatif import Question, predict

CAPS = ("0.5", "2", "5", "25", "100")
RATES = ("600mbit", "1gbit", "2gbit")
RANKS = (2, 4)
SHARE, BATCH = "0.2", "2"
"""Of a CPU, for each rank's training thread: four of them fit on one. The batch keeps compute about as long as a reduction."""
SCRIPT = Path(__file__).with_name("held.py")


@dataclass(frozen=True)
class Cell:
    """One sweep. held: each rank to `SHARE` of a CPU."""

    rate: str
    ranks: int
    held: bool = True

    @property
    def name(self) -> str:
        """Of its folder."""
        return f"{self.rate}-{self.ranks}{'' if self.held else '-free'}"


CELLS = (*(Cell(rate, ranks) for rate in RATES for ranks in RANKS), Cell("600mbit", 2, held=False))


def main() -> None:
    """Sweep what is missing, all cells once before any of them again; the page is of what there is."""
    args = _parser().parse_args()
    cells = [cell for cell in CELLS if not args.only or cell.name in args.only.split(",")]
    made: dict[str, dict[str, Any]] = {}
    for rounds in range(1, args.repeat + 1):
        for cell in cells:
            made[cell.name] = _sweep(cell, rounds, args)
            _write([made[one.name] for one in cells if one.name in made], args.out)


def _write(cells: list[dict[str, Any]], out: Path) -> None:
    study = {
        "command": ["python", "-m", "benchmarks.sweep_study", "--runs", "DIR"],
        "cpus": os.cpu_count(),
        "share": float(SHARE),
        "batch_size": int(BATCH),
        "cells": cells,
        "scaling": [row for two in cells if two["ranks"] == 2 for row in _scaling(two, cells)],
    }
    out.mkdir(parents=True, exist_ok=True)
    (out / "study.json").write_text(json.dumps(study, indent=1) + "\n", encoding="utf-8")
    for name, text in pictures(study):
        (out / name).write_text(text, encoding="utf-8")
    (out / "README.md").write_text(page(study), encoding="utf-8")
    print(f"Wrote {out}", flush=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=Path, required=True, metavar="DIR", help="where the sweeps are kept")
    parser.add_argument("--out", type=Path, default=Path("reports/gallery/bucket-sweep"), metavar="DIR")
    parser.add_argument("--only", metavar="CELL,...", help=f"of {', '.join(cell.name for cell in CELLS)}")
    parser.add_argument(
        "--repeat", type=int, default=2, metavar="N", help="rounds of each sweep (default: 2)"
    )
    parser.add_argument("--warmup", default="6", metavar="N", help="as of `stepscope sweep` (default: 6)")
    parser.add_argument("--steps", default="3", metavar="N", help="recorded steps a run (default: 3)")
    return parser


def _sweep(cell: Cell, rounds: int, args: argparse.Namespace) -> dict[str, Any]:
    """Run or finish one sweep, and take from its sweep.json what the study is about."""
    folder = args.runs / cell.name
    folder.parent.mkdir(parents=True, exist_ok=True)
    before = os.getloadavg()[0]
    script = [str(SCRIPT), SHARE, "gpt", "--batch-size", BATCH] if cell.held else ["gpt"]
    command = [
        *(sys.executable, "-P", "-m", "stepscope", "sweep", "--bucket-cap-mb", ",".join(CAPS)),
        *("--repeat", str(rounds), "--warmup", args.warmup, "--steps", args.steps),
        *("--fabric", cell.rate, "--nproc-per-node", str(cell.ranks), "--out", str(folder), *script),
    ]
    done = subprocess.run(command, check=False, stdout=subprocess.DEVNULL)
    remove_groups()
    if done.returncode:
        raise SystemExit(f"{cell.name} ended with {done.returncode}; see {folder}, then run the study again")
    swept = json.loads((folder / "sweep.json").read_text("utf-8"))
    print(f"{cell.name}: {swept['explanation']}", flush=True)
    source = next(row["predicted_from"] for row in swept["rows"] if row["label"] == "25 MiB")
    return {
        "rate": cell.rate,
        "ranks": cell.ranks,
        "held": cell.held,
        "load_before": before,
        "repeat": rounds,
        "predicted_from": source,
        **_predicted(folder / source, cell),
        **{name: swept[name] for name in ("rows", "best", "explanation", "seed")},
        "model": swept.get("model"),
    }


def _predicted(run: Path, cell: Cell) -> dict[str, Any]:
    """What `stepscope predict` makes of one run: the cap that it recommends, and from two ranks the steps of four."""
    kept = run / "study.json"
    if kept.exists():
        found: dict[str, Any] = json.loads(kept.read_text("utf-8"))
        return found
    found = _predict(run, cell)
    kept.write_text(json.dumps(found), encoding="utf-8")
    return found


def _predict(run: Path, cell: Cell) -> dict[str, Any]:
    case = read_case(run)
    caps = [float(cap) for cap in CAPS]
    recommended = predict(case, str(run), Question(caps)).recommended_mb
    if cell.ranks == max(RANKS) or not cell.held:
        return {"recommended_mb": recommended}
    scaled = predict(case, str(run), Question(caps, world_size=max(RANKS)))
    return {
        "recommended_mb": recommended,
        "on_four_ranks": {f"{one.bucket_cap_mb:g}": one.step_ms for one in scaled.caps},
    }


def _scaling(two: dict[str, Any], cells: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Each cap on four ranks as the run on two predicts it, beside what was measured of both."""
    four = next((one for one in cells if (one["rate"], one["ranks"]) == (two["rate"], max(RANKS))), None)
    if four is None or "on_four_ranks" not in two:
        return []
    return [
        {
            "rate": two["rate"],
            "cap": before["label"],
            "from_ms": before["step_ms"],
            "step_ms": after["step_ms"],
            "predicted_step_ms": two["on_four_ranks"][after["knobs"]["bucket-cap-mb"]],
        }
        for before, after in zip(two["rows"], four["rows"], strict=True)
    ]


if __name__ == "__main__":
    main()
