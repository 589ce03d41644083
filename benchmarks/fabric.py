"""How well an emulated fabric keeps its rates, and `stepscope calibrate` finds them: `python -m benchmarks.fabric`.

Calibrates at three rates on two and four ranks, compares B with the shaped rate less the headers, fits again without a third of
the sizes and predicts those. Writes README.md, study.json and busbw.svg. Needs root and iproute2, and about ten minutes.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import msgspec

from benchmarks.fabric_text import chart, page
from stepscope.budget.calibration import Sample, calibrate
from stepscope.budget.measured import Calibration, Collective
from stepscope.budget.quantities import Size

RATES = ("400mbit", "1gbit", "2gbit")
RANKS = (2, 4)
HELD_BACK_EVERY = 3
"""The second, fifth, eighth ... size."""


def main() -> None:
    """Measure every case and write the study."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, default=Path("reports/gallery/emulated-fabric"))
    parser.add_argument("--max-bytes", default="32M")
    parser.add_argument("--seconds-per-size", default="0.7")
    args = parser.parse_args()
    cases = [case(rate, ranks, args) for rate in RATES for ranks in RANKS]
    study = {
        "command": ["python", "-m", "benchmarks.fabric", *sys.argv[1:]],
        "real_time": os.sched_getscheduler(0) == os.SCHED_FIFO,
        "cpus": os.cpu_count(),
        "cases": cases,
    }
    args.out.mkdir(parents=True, exist_ok=True)
    (args.out / "study.json").write_text(json.dumps(study) + "\n", encoding="utf-8")
    (args.out / "busbw.svg").write_text(chart(cases), encoding="utf-8")
    (args.out / "README.md").write_text(page(study), encoding="utf-8")
    print(f"Wrote {args.out}")


def case(rate: str, ranks: int, args: argparse.Namespace) -> dict[str, Any]:
    """One calibration and what it is worth."""
    before = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder, "fabric.json")
        options = ("-e", args.max_bytes, "--seconds-per-size", args.seconds_per_size)
        subprocess.run(
            [
                *(sys.executable, "-m", "stepscope", "calibrate", "--out", out.name),
                *("--fabric", rate, "--nproc-per-node", str(ranks), *options),
            ],
            check=True,
            cwd=folder,
            stdout=subprocess.DEVNULL,
        )
        made = msgspec.json.decode(out.read_bytes(), type=Calibration)
    assert made.emulated is not None
    payload = made.emulated["rate_bit_per_s"] / 8e9 * made.emulated["payload_share"]
    judged = {one.name: judge(one, ranks, payload) for one in made.collectives}
    print(f"{rate} x {ranks}: {judged['all_reduce']['b_error']:+.1%}", flush=True)
    return {
        "rate": rate,
        "ranks": ranks,
        "load_before": before,
        "payload_gb_per_s": payload,
        "judged": judged,
        "calibration": msgspec.to_builtins(made),
    }


def judge(one: Collective, ranks: int, payload: float) -> dict[str, Any]:
    """B against the link, the largest size's bus bandwidth against it, and the sizes that were held back from a fit."""
    held = one.points[1::HELD_BACK_EVERY]
    kept = [point for point in one.points if point not in held]
    # a point's median stands for its repetitions: the fit takes the median anyway
    part = calibrate(
        one.name, ranks, [Sample(one.name, point.bytes, 1, [point.time_us / 1e6]) for point in kept], None
    )
    valid = part.fit.valid_bytes if part.fit else None
    predictions = [
        {
            "bytes": point.bytes,
            "time_us": point.time_us,
            "predicted_us": part.predicted(Size.from_bytes(point.bytes)).us,
            "inside": valid is not None and valid[0] <= point.bytes <= valid[1],
        }
        for point in held
        if part.fit
    ]
    spreads = sorted(
        (point.time_us_quartiles[1] - point.time_us_quartiles[0]) / point.time_us for point in one.points
    )
    return {
        "b_error": one.fit.bandwidth_gb_per_s / payload - 1 if one.fit else None,
        "largest_error": one.points[-1].busbw_gb_per_s / payload - 1,
        "valid_bytes": valid,
        "held_back": predictions,
        "typical_spread": spreads[len(spreads) // 2],
    }


if __name__ == "__main__":
    main()
