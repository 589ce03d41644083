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

STEP, BESIDE_COMPUTE = "difference_ms", "beside_compute_ms"
"""What a price is held against: the difference of the steps, and of what in them was no compute."""

Study = dict[str, Any]
Cell = dict[str, Any]
Noise = dict[tuple[str, str, str], float]


def page(study: Study) -> str:
    """The study in Markdown: every figure is measured, also where it falls short."""
    noise = noise_of(study["clean"])
    parts = (_head(study, noise), _method(study), _confusion(study), _clean(study), _prices(study, noise))
    return "\n".join(line for part in parts for line in part) + "\n"


def noise_of(clean: Sequence[Cell]) -> Noise:
    """By setting, flags and kind of difference: its standard deviation in ms between neighbouring clean runs."""
    times: dict[tuple[str, str, str], list[float]] = defaultdict(list)
    for run in clean:
        for kind, time in run["times"].items():
            times[run["setting"], run["flags"], kind].append(time)
    apart = {place: [abs(b - a) for a, b in pairwise(each)] for place, each in times.items()}
    return {place: _SIGMA * median(each) for place, each in apart.items() if each}


def top(cell: Cell) -> str:
    """The costliest finding of a run with a fault."""
    return str(cell["found"][0]) if cell["found"] else NOTHING


def largest(clean: Cell) -> float:
    """The largest finding of a clean run as a share of its step."""
    return max((float(found["share"]) for found in clean["found"]), default=0.0)


def tells(cell: Cell, kind: str, noise: Noise) -> bool:
    """Whether a measured difference is sharp enough to hold a price against it: its noise is within the target."""
    known = noise.get((cell["setting"], cell["flags"], kind))
    return known is not None and known <= PRICE_TARGET * cell[kind]


def is_near(cell: Cell, kind: str) -> bool:
    """Whether there is a price, and it is within the target of a measured difference."""
    price, difference = cell["price_ms"], cell[kind]
    return price is not None and abs(price - difference) <= PRICE_TARGET * difference


def _head(study: Study, noise: Noise) -> Iterator[str]:
    cells, clean = study["cells"], study["clean"]
    right = sum(top(cell) == cell["cause"] for cell in cells)
    small = sum(largest(run) <= CLEAN_TARGET for run in clean)
    priced = [cell for cell in cells if cell["fault"] not in _apart(study)]
    yield "# Are injected faults found, and priced right?\n"
    yield f"Made by `{' '.join(study['command'])}`; all figures are in [study.json](study.json).\n"
    yield "| | target | measured |"
    yield "|---|---|---|"
    yield f"| the injected cause is the top finding | {_percent(TOP_TARGET)} | {_share(right, len(cells))} |"
    yield f"| clean runs without a finding above {_percent(CLEAN_TARGET)} of the step | all | {_share(small, len(clean))} |"
    within = f"price within {_percent(PRICE_TARGET)} of"
    for kind, what in (
        (STEP, "the steps' difference"),
        (BESIDE_COMPUTE, "the difference in what was no compute"),
    ):
        sharp = [cell for cell in priced if tells(cell, kind, noise)]
        yield f"| {within} {what}, where its noise is below that | all | {_share(_near(sharp, kind), len(sharp))} |"
        yield f"| the same, noise or not | | {_share(_near(priced, kind), len(priced))} |"
    yield ""


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
    yield _held(study["share"])
    yield "`{two_buckets}` and `{four_buckets}` are twice and four times the bucket size.\n"
    yield "| fault | as the workload is told | flags of both runs |"
    yield "|---|---|---|"
    for fault in study["faults"]:
        own = [f"`{fault['fault']}`"]
        own += [f"links of {fault['fabric']}"] if fault["fabric"] else []
        usual = [record["warmup"], record["steps"]]
        own += [f"step {fault['record'][0]} recorded"] if list(fault["record"]) != usual else []
        yield f"| {fault['name']} | {', '.join(own)} | {_code(fault['flags'])} |"
    yield ""


def _held(share: str) -> str:
    if share == "none":
        return (
            "The ranks fill the processors and compete for them: compute takes longer beside a transfer, and less while another "
            "rank waits, so that steps differ in more than the fault.\n"
        )
    return (
        f"Each rank's training thread has {_percent(float(share))} of the first processor, and the threads of the network have "
        "the other ([held.py](../../../benchmarks/held.py)): ranks that compete for processors would compute faster or slower "
        "with every fault, and steps would differ in more than it.\n"
    )


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
        "Medians over a fault's runs in ms, of the recorded steps; unprofiled: the difference of the steps around them. Noise is "
        "the standard deviation of the difference between two clean runs that are neighbours: where it is above "
        f"{_percent(PRICE_TARGET)} of the difference, the comparison says nothing, and only the rest counts as sharp.\n"
    )
    yield (
        "A price leaves apart that compute takes longer beside a transfer (METRICS.md, section 6): it is held against the "
        "difference of the steps, and against the difference of what in the steps was no compute.\n"
    )
    yield f"Clean runs that differ in more than the cause, so that the two need not agree: {differing}.\n"
    of_each = "difference | noise | near | of sharp | no compute | noise | near | of sharp"
    yield f"| fault | step | clean | price | {of_each} | unprofiled |"
    yield "|---|---|---|---|---|---|---|---|---|---|---|---|---|"
    for fault, mine in _by_fault(study["cells"]).items():
        prices = [cell["price_ms"] for cell in mine if cell["price_ms"] is not None]
        figures = [
            _middle(mine, "step_ms"),
            _middle(mine, "clean_step_ms"),
            f"{median(prices):.1f}" if prices else "",
        ]
        for kind in (STEP, BESIDE_COMPUTE):
            figures += _against(mine, kind, noise, comparable=fault not in _apart(study))
        yield f"| {fault} | {' | '.join(figures)} | {_middle(mine, 'unprofiled_difference_ms')} |"


def _against(mine: Sequence[Cell], kind: str, noise: Noise, *, comparable: bool) -> list[str]:
    """Difference, its noise, and how many prices are near it: of all, and of those whose difference is sharp."""
    known = [noise[place] for cell in mine if (place := (cell["setting"], cell["flags"], kind)) in noise]
    figures = [_middle(mine, kind), f"{median(known):.1f}" if known else ""]
    if not comparable:
        return [*figures, "", ""]
    sharp = [cell for cell in mine if tells(cell, kind, noise)]
    return [*figures, *(f"{_near(many, kind)} of {len(many)}" for many in (mine, sharp))]


def _near(cells: Sequence[Cell], kind: str) -> int:
    return sum(is_near(cell, kind) for cell in cells)


def _middle(cells: Sequence[Cell], column: str) -> str:
    return f"{median([cell[column] for cell in cells]):.1f}"


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
