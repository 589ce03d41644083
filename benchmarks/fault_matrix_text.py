"""The fault matrix as a page: who was found instead of whom, what clean runs show, and how right the prices are."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

from stepscope.stats import median

TOP_TARGET, CLEAN_TARGET, PRICE_TARGET = 0.95, 0.03, 0.20
NOTHING = "nothing"
_SIGMA = 1.4826
"""Standard deviations in a median absolute deviation of normal noise."""

Study = dict[str, Any]
Cell = dict[str, Any]
Noise = dict[tuple[str, str], float]


def page(study: Study) -> str:
    """The study in Markdown: every figure is measured, also where it falls short."""
    noise = noise_of(study["clean"])
    parts = (_head(study, noise), _method(study), _confusion(study), _clean(study), _prices(study, noise))
    return "\n".join(line for part in parts for line in part) + "\n"


def noise_of(clean: Sequence[Cell]) -> Noise:
    """By setting and flags, the standard deviation in ms of the difference between two clean runs that are neighbours."""
    steps: dict[tuple[str, str], list[float]] = defaultdict(list)
    for run in clean:
        steps[_place(run)].append(run["step_ms"])
    apart = {place: [abs(b - a) for a, b in pairwise(times)] for place, times in steps.items()}
    return {place: _SIGMA * median(each) for place, each in apart.items() if each}


def top(cell: Cell) -> str:
    """The costliest finding of a run with a fault."""
    return str(cell["found"][0]) if cell["found"] else NOTHING


def largest(clean: Cell) -> float:
    """The largest finding of a clean run as a share of its step."""
    return max((float(found["share"]) for found in clean["found"]), default=0.0)


def error(cell: Cell) -> float | None:
    """The price against the measured difference of the recorded steps; None without a price."""
    difference = cell["difference_ms"]
    return cell["price_ms"] / difference - 1 if cell["price_ms"] is not None and difference > 0 else None


def tells(cell: Cell, noise: Noise) -> bool:
    """Whether the measured difference is sharp enough to hold a price against it: its noise is within the target."""
    known = noise.get(_place(cell))
    return known is not None and known <= PRICE_TARGET * cell["difference_ms"]


def is_near(cell: Cell) -> bool:
    """Whether the price is within the target."""
    off = error(cell)
    return off is not None and abs(off) <= PRICE_TARGET


def _place(cell: Cell) -> tuple[str, str]:
    return cell["setting"], cell["flags"]


def _head(study: Study, noise: Noise) -> Iterator[str]:
    cells, clean = study["cells"], study["clean"]
    right = sum(top(cell) == cell["cause"] for cell in cells)
    small = sum(largest(run) <= CLEAN_TARGET for run in clean)
    apart = _apart(study)
    priced = [cell for cell in cells if cell["fault"] not in apart]
    sharp = [cell for cell in priced if tells(cell, noise)]
    yield "# Are injected faults found, and priced right?\n"
    yield f"Made by `{' '.join(study['command'])}`; all figures are in [study.json](study.json).\n"
    yield "| | target | measured |"
    yield "|---|---|---|"
    yield f"| the injected cause is the top finding | {_percent(TOP_TARGET)} | {_share(right, len(cells))} |"
    yield f"| clean runs without a finding above {_percent(CLEAN_TARGET)} of the step | all | {_share(small, len(clean))} |"
    yield (
        f"| price within {_percent(PRICE_TARGET)} of the measured difference, where its noise is smaller than that | all | "
        f"{_share(sum(map(is_near, sharp)), len(sharp))} |"
    )
    near = _share(sum(map(is_near, priced)), len(priced))
    yield f"| the same, of all runs whose clean run differs in nothing else | | {near} |\n"


def _method(study: Study) -> Iterator[str]:
    cells, clean, record = study["cells"], study["clean"], study["record"]
    seeds = sorted({cell["seed"] for cell in cells})
    settings = "; ".join(f"`{' '.join(flags)}`" for flags in study["settings"])
    yield "## What was run\n"
    yield (
        f"{len(cells)} runs with a fault and {len(clean)} clean ones of the same flags and seed, each recorded on two gloo ranks "
        f"on {study['cpus']} processors with links of {study['fabric']}. Every run with a fault has its clean run right before "
        f"or after it; two faults share one. Models and bucket sizes: {settings}; seeds: {', '.join(map(str, seeds))}. "
        f"{record['steps']} steps are recorded after {record['warmup']}, unless the table says otherwise.\n"
    )
    yield "| fault | as the workload is told | flags of both runs |"
    yield "|---|---|---|"
    for fault in study["faults"]:
        own = [f"`{fault['fault']}`"]
        own += [f"links of {fault['fabric']}"] if fault["fabric"] else []
        usual = [record["warmup"], record["steps"]]
        own += [f"step {fault['record'][0]} recorded"] if list(fault["record"]) != usual else []
        yield f"| {fault['name']} | {', '.join(own)} | {_code(fault['flags'])} |"
    yield ""


def _confusion(study: Study) -> Iterator[str]:
    yield "## Top finding by injected fault\n"
    yield "| fault | cause | top finding | found at all |"
    yield "|---|---|---|---|"
    for fault, mine in _by_fault(study["cells"]).items():
        tops = Counter(map(top, mine)).most_common()
        at_all = sum(cell["cause"] in cell["found"] for cell in mine)
        named = ", ".join(f"{cause} {count}" for cause, count in tops)
        yield f"| {fault} | {mine[0]['cause']} | {named} | {at_all} of {len(mine)} |"
    yield ""


def _clean(study: Study) -> Iterator[str]:
    clean = study["clean"]
    found = [one for run in clean for one in run["found"]]
    yield "## Clean runs\n"
    yield f"| cause found | runs | above {_percent(CLEAN_TARGET)} | largest share of the step |"
    yield "|---|---|---|---|"
    for cause, count in Counter(one["cause"] for one in found).most_common():
        shares = [one["share"] for one in found if one["cause"] == cause]
        above = sum(share > CLEAN_TARGET for share in shares)
        yield f"| {cause} | {count} | {above} | {_percent(max(shares))} |"
    yield f"| {NOTHING} | {sum(not run['found'] for run in clean)} | | |\n"


def _prices(study: Study, noise: Noise) -> Iterator[str]:
    differing = "; ".join(f"{name} ({why})" for name, why in _apart(study).items())
    yield "## Price against the measured difference to the clean run\n"
    yield (
        "All of the recorded steps, medians over a fault's runs, in ms; beside it the difference of the steps without the "
        "profiler. The noise is the standard deviation of the difference between two clean runs that are neighbours; where it "
        f"is above {_percent(PRICE_TARGET)} of the difference, the comparison says nothing. These clean runs differ in more "
        f"than the cause, so that the two need not agree: {differing}.\n"
    )
    yield "| fault | step | clean | difference | noise | without profiler | price | within 20 % | where it says something |"
    yield "|---|---|---|---|---|---|---|---|---|"
    for fault, mine in _by_fault(study["cells"]).items():
        columns = ("step_ms", "clean_step_ms", "difference_ms")
        figures = [f"{median([cell[column] for cell in mine]):.1f}" for column in columns]
        known = [noise[_place(cell)] for cell in mine if _place(cell) in noise]
        prices = [cell["price_ms"] for cell in mine if cell["price_ms"] is not None]
        figures += [f"{median(known):.1f}" if known else ""]
        figures += [f"{median([cell['unprofiled_difference_ms'] for cell in mine]):.1f}"]
        figures += [f"{median(prices):.1f}" if prices else ""]
        if fault in _apart(study):
            figures += ["", ""]
        else:
            sharp = [cell for cell in mine if tells(cell, noise)]
            figures += [f"{sum(map(is_near, many))} of {len(many)}" for many in (mine, sharp)]
        yield f"| {fault} | {' | '.join(figures)} |"


def _apart(study: Study) -> dict[str, str]:
    """Faults whose clean run differs in something else, with what."""
    return {fault["name"]: fault["apart"] for fault in study["faults"] if fault["apart"]}


def _by_fault(cells: Sequence[Cell]) -> dict[str, list[Cell]]:
    found: dict[str, list[Cell]] = {}
    for cell in cells:
        found.setdefault(cell["fault"], []).append(cell)
    return found


def _code(words: Sequence[str]) -> str:
    return f"`{' '.join(words)}`" if words else ""


def _share(count: int, of: int) -> str:
    return f"{count} of {of} ({_percent(count / max(1, of))})"


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"
