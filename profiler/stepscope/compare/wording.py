"""A comparison in sentences."""

from __future__ import annotations

from collections.abc import Sequence

from stepscope.compare.result import NOISE, TOO_FEW, Difference, Side
from stepscope.compare.samples import COMPUTE, COST_SHARE, STEP
from stepscope.stats import FEWEST
from stepscope.units import milliseconds, percent

_MANY = 10_000


def summary(a: Side, b: Side, figures: Sequence[Difference]) -> list[str]:
    """The verdict, then the step's time and what communication costs, as far as both sides have them."""
    known = {one.figure: one for one in figures if one.change is not None}
    return [
        _verdict(a, b),
        *([_step(known[STEP], known.get(COMPUTE))] if STEP in known else []),
        *([_cost(known[COST_SHARE])] if COST_SHARE in known else []),
    ]


def _verdict(a: Side, b: Side) -> str:
    if (a.label, a.reason) == (b.label, b.reason):
        return f"both are {a.label} ({a.reason})"
    return f"{a.label} ({a.reason}) became {b.label} ({b.reason})"


def _step(one: Difference, compute: Difference | None) -> str:
    assert one.a and one.b is not None and one.change is not None
    times = f"{milliseconds(one.a)} and {milliseconds(one.b)}"
    if one.says in (NOISE, TOO_FEW):
        return f"a step takes {times}: {untold(one)}"
    low, high = sorted(abs(end / one.a) for end in one.change_ci or (0.0, 0.0))
    return (
        f"a step takes {percent(abs(one.change / one.a))} {_way(one.change)} (95 % interval {100 * low:.1f} to "
        f"{percent(high)}): {times}{_of_compute(one.change, compute)}"
    )


def _of_compute(change: float, compute: Difference | None) -> str:
    """How much of a step's change is compute's, so that nobody credits the communication with it."""
    if compute is None or compute.change is None or compute.says in (NOISE, TOO_FEW):
        return ""
    if 0 < compute.change / change <= 1:
        return f"; {milliseconds(abs(compute.change))} of the {milliseconds(abs(change))} are compute"
    return f"; compute alone takes {milliseconds(abs(compute.change))} {_way(compute.change)}"


def _way(change: float) -> str:
    return "longer" if change > 0 else "less"


def _cost(one: Difference) -> str:
    assert one.a is not None and one.b is not None and one.change is not None
    shares = f"communication costs {percent(one.a)} and {percent(one.b)} of the step"
    if one.says in (NOISE, TOO_FEW):
        return f"{shares}: {untold(one)}"
    low, high = one.change_ci or (0.0, 0.0)
    return f"{shares}, {100 * one.change:+.1f} points (95 % interval {100 * low:+.1f} to {100 * high:+.1f})"


def untold(one: Difference) -> str:
    """Why a difference says nothing, and what would make it say something."""
    if one.says == TOO_FEW:
        return f"too few steps to tell; record {FEWEST} or more on both sides (--steps)"
    if one.steps_needed is None:
        return "no difference"
    return f"the difference is noise; a real one of this size would take {enough(one)} to show"


def enough(one: Difference) -> str:
    """About how many steps a side would tell a change of this size."""
    needed = one.steps_needed or 0
    return f"{f'over {_MANY:,}' if needed > _MANY else f'about {needed:,}'} steps a side"
