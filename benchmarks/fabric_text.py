"""The study of emulated fabrics as a page and a picture."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

from stepscope.budget.calibration import binary

LIMIT_OF_B, LIMIT_OF_PREDICTION = 0.05, 0.10

_WIDTH, _HEIGHT, _LEFT, _TOP, _RIGHT, _BOTTOM = 720, 380, 60, 20, 110, 40
_COLOURS = ("#1b6ca8", "#1b6ca8", "#c0562f", "#c0562f", "#3a7d44", "#3a7d44")


def page(study: dict[str, Any]) -> str:
    """The study in Markdown: every figure is measured, also where it falls short."""
    return (
        "\n".join(
            [
                *_head(study),
                *_bandwidth(study["cases"]),
                *_held_back(study["cases"]),
                *_others(study["cases"]),
            ]
        )
        + "\n"
    )


def _head(study: dict[str, Any]) -> Iterator[str]:
    first = study["cases"][0]["calibration"]
    yield "# Does an emulated fabric keep its rate, and does `calibrate` find it?\n"
    yield f"Made by `{' '.join(study['command'])}`; all figures are in [study.json](study.json).\n"
    yield (
        f"Each rank is a process in its own network namespace; its link is shaped both ways by `tc tbf`. {first['backend']}, "
        f"torch {first['versions'].get('torch')}, {first['device']}, {first['date'][:10]}.\n"
    )
    priority = (
        ", the ranks at real-time priority (`chrt -f 1` before the command), as other work was going on; the kernel's network "
        "threads were not"
    )
    yield f"On {study['cpus']} processors{priority if study['real_time'] else ''}.\n"
    yield (
        "A full packet carries 1448 bytes of data in 1514 on the wire as the shaper counts it (MTU 1500, 20 bytes of IP, 32 of "
        "TCP with timestamps, 14 of Ethernet): 95.64 % of the rate is the most that a collective can reach. B is compared "
        "with that.\n"
    )
    yield "![bus bandwidth by size](busbw.svg)\n"


def _bandwidth(cases: Sequence[dict[str, Any]]) -> Iterator[str]:
    yield "## B of the all-reduce against the shaped rate\n"
    yield "| rate | ranks | link GB/s | B GB/s (95 %) | off | largest size | alpha us | short us | spread | load |"
    yield "|---|---|---|---|---|---|---|---|---|---|"
    for case in cases:
        fit = next(one["fit"] for one in case["calibration"]["collectives"] if one["name"] == "all_reduce")
        judged = case["judged"]["all_reduce"]
        low, high = fit["bandwidth_gb_per_s_interval"]
        floor = "" if fit["floor_us"] is None else f"{fit['floor_us']:.0f}"
        yield (
            f"| {case['rate']} | {case['ranks']} | {case['payload_gb_per_s']:.4f} | {fit['bandwidth_gb_per_s']:.4f} "
            f"({low:.4f} to {'any' if high is None else f'{high:.4f}'}) | {_mark(judged['b_error'], LIMIT_OF_B)} | "
            f"{100 * judged['largest_error']:+.1f} % | {fit['alpha_us']:.0f} | {floor} | "
            f"{100 * judged['typical_spread']:.0f} % | {case['load_before']:.1f} |"
        )
    yield (
        "\n*link*: the rate less headers. *largest size*: bus bandwidth of the largest all-reduce against the link, not fitted. "
        "*short*: what short operations take. *spread*: quartile range over median, of the median size. *load*: the load "
        "average before the case; other work on it makes small messages late. Bold is more than 5 % off.\n"
    )


def _held_back(cases: Sequence[dict[str, Any]]) -> Iterator[str]:
    yield "## Sizes held back from the fit, and predicted\n"
    yield "Every third size was left out of the fit; the error of its predicted all-reduce time:\n"
    sizes = [row["bytes"] for row in cases[0]["judged"]["all_reduce"]["held_back"]]
    yield f"| rate | ranks | {' | '.join(map(binary, sizes))} | fit holds |"
    yield "|---|---|" + "---|" * (len(sizes) + 1)
    inside = []
    for case in cases:
        judged = case["judged"]["all_reduce"]
        cells = [_prediction(row) for row in judged["held_back"]]
        inside += [_error(row) for row in judged["held_back"] if row["inside"]]
        low, high = judged["valid_bytes"] or (0, 0)
        yield f"| {case['rate']} | {case['ranks']} | {' | '.join(cells)} | {binary(low)} to {binary(high)} |"
    good = sum(abs(error) <= LIMIT_OF_PREDICTION for error in inside)
    yield (
        f"\n*fit holds*: where the fit of the kept sizes is within 10 %, as `calibrate` says it; sizes outside are in "
        f"parentheses. Inside, {good} of {len(inside)} held-back sizes are predicted within 10 %. Bold is more than 10 % off.\n"
    )


def _others(cases: Sequence[dict[str, Any]]) -> Iterator[str]:
    names = [one["name"] for one in cases[0]["calibration"]["collectives"] if one["name"] != "all_reduce"]
    yield "## The other collectives\n"
    yield "Bus bandwidth of the largest size against the link, by nccl-tests' definition:\n"
    yield f"| rate | ranks | {' | '.join(names)} |"
    yield "|---|---|" + "---|" * len(names)
    for case in cases:
        cells = [f"{100 * case['judged'][name]['largest_error']:+.0f} %" for name in names]
        yield f"| {case['rate']} | {case['ranks']} | {' | '.join(cells)} |"
    yield (
        "\nWhat they are short by is gloo's own, for the link is the same: it runs a reduce-scatter as an all-reduce, "
        "twice the data; a broadcast goes down a tree, whole, so that four ranks take three times the array's time; "
        "in an all-gather on two ranks the sockets have nothing to send for a part of the time, as `ss -ti` shows."
    )


def _error(row: dict[str, Any]) -> float:
    return float(row["predicted_us"] / row["time_us"] - 1)


def _prediction(row: dict[str, Any]) -> str:
    text = _mark(_error(row), LIMIT_OF_PREDICTION)
    return text if row["inside"] else f"({text})"


def _mark(error: float, limit: float) -> str:
    text = f"{100 * error:+.1f} %"
    return text if abs(error) <= limit else f"**{text}**"


def chart(cases: Sequence[dict[str, Any]]) -> str:
    """Bus bandwidth of the all-reduce as a share of the link's, by size, as SVG; dashed lines are four ranks."""
    lines = [
        [(point["bytes"], point["busbw_gb_per_s"] / case["payload_gb_per_s"]) for point in _all_reduce(case)]
        for case in cases
    ]
    low, high = lines[0][0][0], lines[0][-1][0]

    def place(size: float, share: float) -> str:
        x = _LEFT + (_WIDTH - _LEFT - _RIGHT) * math.log(size / low) / math.log(high / low)
        y = _TOP + (_HEIGHT - _TOP - _BOTTOM) * (1 - min(share, 1.1) / 1.1)
        return f"{x:.1f},{y:.1f}"

    def text(where: str, shown: str, anchor: str) -> str:
        x, y = where.split(",")
        return f'<text x="{x}" y="{y}" dy="4" text-anchor="{anchor}">{shown}</text>'

    drawn = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" font-family="sans-serif" font-size="12">',
        f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="white"/>',
    ]
    for tenth in range(0, 11, 2):
        at = place(low, tenth / 10)
        drawn.append(f'<polyline points="{at} {place(high, tenth / 10)}" stroke="#ddd"/>')
        drawn.append(text(f"{_LEFT - 8},{at.split(',')[1]}", f"{10 * tenth} %", "end"))
    for size in (point[0] for point in lines[0][::3]):
        drawn.append(text(f"{place(size, 0).split(',')[0]},{_HEIGHT - 20}", binary(size), "middle"))
    for index, (case, line) in enumerate(zip(cases, lines, strict=True)):
        dash = ' stroke-dasharray="5 4"' if case["ranks"] > 2 else ""
        points = " ".join(place(*point) for point in line)
        drawn.append(
            f'<polyline points="{points}" fill="none" stroke="{_COLOURS[index]}" stroke-width="2"{dash}/>'
        )
        at = f"{_WIDTH - _RIGHT + 10},{_TOP + 20 + 20 * index}"
        drawn.append(
            f'<text x="{at.split(",")[0]}" y="{at.split(",")[1]}" fill="{_COLOURS[index]}">'
            f"{case['rate']}, {case['ranks']} ranks{' - -' if dash else ''}</text>"
        )
    return "\n".join([*drawn, "</svg>"]) + "\n"


def _all_reduce(case: dict[str, Any]) -> list[dict[str, Any]]:
    points: list[dict[str, Any]] = next(
        one["points"] for one in case["calibration"]["collectives"] if one["name"] == "all_reduce"
    )
    return points
