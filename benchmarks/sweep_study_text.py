"""The study of bucket caps as a page: what was measured, what one run predicted, and whether that is good enough."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from stepscope.stats import median
from stepscope.units import plural

MEDIAN_TARGET, WORST_TARGET, LOSS_TARGET, SCALING_TARGET = 0.05, 0.10, 0.03, 0.15

RECORDED_MB = 25

Study = dict[str, Any]
Cell = dict[str, Any]
Row = dict[str, Any]


def page(study: Study) -> str:
    """The study in Markdown: every figure is measured, also where it falls short."""
    parts = (_head(study), _answer(study), _cells(study["cells"]), _scaling(study["scaling"]), _method(study))
    return "\n".join(line for part in parts for line in part) + "\n"


def errors(cells: Sequence[Cell]) -> list[float]:
    """Of every cap of every cell: predicted over measured, less one."""
    return [error for cell in cells for row in cell["rows"] if (error := error_of(row)) is not None]


def error_of(row: Row) -> float | None:
    """Predicted over measured, less one; None where nothing was predicted."""
    predicted = row.get("predicted_step_ms")
    return None if predicted is None else float(predicted / row["step_ms"] - 1)


def taken(cell: Cell) -> Row:
    """The cap that the prediction recommends; where it recommends none, the recorded one stays."""
    cap = cell["recommended_mb"] or RECORDED_MB
    row: Row = min(cell["rows"], key=lambda row: abs(row["bucket_cap_mb"] - cap))
    return row


def loss_of(cell: Cell) -> float:
    """How much longer the measured step of the recommended cap is than the shortest one measured."""
    return float(taken(cell)["step_ms"]) / min(float(row["step_ms"]) for row in cell["rows"]) - 1


def _head(study: Study) -> Iterator[str]:
    yield "# Bucket caps: measured, and predicted from one run\n"
    yield f"Made by `{' '.join(study['command'])}`; all figures are in [study.json](study.json).\n"
    yield (
        "The bundled GPT (`gpt`, 10.8 M parameters, 41 MiB of gradients) under DDP with gloo, each rank in a network namespace "
        "of its own whose link is held to the rate. `stepscope sweep` measures five bucket caps; from the first run at 25 MiB "
        "alone `stepscope predict` says what each of them would take.\n"
    )
    for ranks in sorted({cell["ranks"] for cell in study["cells"]}):
        yield f"![step by bucket cap on {ranks} ranks](step-{ranks}-ranks.svg)\n"


def _answer(study: Study) -> Iterator[str]:
    cells = study["cells"]
    off = [abs(error) for error in errors(cells)]
    losses = [loss_of(cell) for cell in cells]
    yield "## Is it good enough?\n"
    yield "| figure | target | measured |"
    yield "|---|---|---|"
    if off:
        yield _target("predicted step, median error", MEDIAN_TARGET, median(off), plural(len(off), "point"))
        yield _target("predicted step, worst error", WORST_TARGET, max(off), plural(len(off), "point"))
    if losses:
        yield _target(
            "recommended cap over the best one measured, worst",
            LOSS_TARGET,
            max(losses),
            plural(len(losses), "sweep"),
        )
    if study["scaling"]:
        worst = max(abs(one["predicted_step_ms"] / one["step_ms"] - 1) for one in study["scaling"])
        yield _target(
            "four ranks from two, worst error", SCALING_TARGET, worst, plural(len(study["scaling"]), "point")
        )
    yield ""


def _target(name: str, target: float, value: float, of: str) -> str:
    kept = "kept" if value <= target else "**missed**"
    return f"| {name} | {100 * target:.0f} % | {100 * value:.1f} %, {of}: {kept} |"


def _cells(cells: Sequence[Cell]) -> Iterator[str]:
    for cell in cells:
        free = "" if cell["held"] else ", ranks not held"
        yield f"## {cell['rate']}, {cell['ranks']} ranks{free}\n"
        yield f"{cell['explanation']}\n"
        yield "| cap MiB | buckets | step ms | 95 % | exposed ms | floor ms | overlap | model ms | predicted ms | off |"
        yield "|---|---|---|---|---|---|---|---|---|---|"
        yield from (_row(row) for row in cell["rows"])
        advice = "recommends no other cap than the 25 MiB it was recorded with"
        if cell["recommended_mb"] is not None:
            advice = f"recommends {cell['recommended_mb']:g} MiB"
        yield f"\nThe prediction {advice}: {100 * loss_of(cell):.1f} % over the shortest step measured.\n"


def _row(row: Row) -> str:
    low, high = row.get("step_ms_ci") or (None, None)
    error = error_of(row)
    cells = (
        f"{row['bucket_cap_mb']:g}",
        str(row.get("buckets", "")),
        f"{row['step_ms']:.0f}",
        "" if low is None else f"{low:.0f} to {high:.0f}",
        *(_number(row.get(name)) for name in ("exposed_ms", "floor_ms")),
        "" if row.get("overlap_backward") is None else f"{100 * row['overlap_backward']:.0f} %",
        *(_number(row.get(name)) for name in ("model_ms", "predicted_step_ms")),
        "" if error is None else _mark(error, WORST_TARGET),
    )
    return f"| {' | '.join(cells)} |"


def _scaling(rows: Sequence[Row]) -> Iterator[str]:
    if not rows:
        return
    yield "## From two ranks to four\n"
    yield "Predicted from the two ranks' first run at 25 MiB; *change* is the step on four ranks over that on two:\n"
    yield "| rate | cap | two ranks ms | four ranks ms | predicted ms | off | change | predicted |"
    yield "|---|---|---|---|---|---|---|---|"
    for row in rows:
        error = row["predicted_step_ms"] / row["step_ms"] - 1
        change, predicted = (row[name] / row["from_ms"] for name in ("step_ms", "predicted_step_ms"))
        yield (
            f"| {row['rate']} | {row['cap']} | {row['from_ms']:.0f} | {row['step_ms']:.0f} | "
            f"{row['predicted_step_ms']:.0f} | {_mark(error, SCALING_TARGET)} | {change:.2f} | {predicted:.2f} |"
        )
    yield ""


def _method(study: Study) -> Iterator[str]:
    loads = max(cell["load_before"] for cell in study["cells"])
    yield "## How\n"
    yield (
        f"{_rounds(study['cells'])} of all caps in random order (seed {study['cells'][0]['seed']}) on {study['cpus']} cores. "
        "*step*: steps without the profiler, the geometric mean of the runs' medians, with the 95 % interval by the spread "
        "between runs; exposed, floor and overlap are of the three recorded steps of each run. *model*: gradient communication "
        "by a ring whose alpha and B are fitted to the sweep. Bold is off by more than the target.\n"
    )
    yield (
        f"Four ranks share two cores with each other, two do not. So that they compare, each rank's training thread has "
        f"{100 * study['share']:.0f} % of the first CPU and a batch of {study['batch_size']}, and the network's threads have the "
        "other CPU ([held.py](../../../benchmarks/held.py)). The sweep marked as not held runs the script as it is. Load "
        f"average before a sweep: {loads:.1f} at most.\n"
    )


def _rounds(cells: Sequence[Cell]) -> str:
    few, many = (choose(cell["repeat"] for cell in cells) for choose in (min, max))
    return plural(many, "round") if few == many else f"{few} to {plural(many, 'round')}"


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.0f}"


def _mark(error: float, limit: float) -> str:
    text = f"{100 * error:+.1f} %"
    return text if abs(error) <= limit else f"**{text}**"
