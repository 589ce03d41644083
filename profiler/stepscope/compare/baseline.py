"""An audit held against an earlier one of the same job: what got worse by more than is tolerated, and by more than noise."""

from __future__ import annotations

from dataclasses import dataclass

from stepscope.audit.result import Audit
from stepscope.compare.between import difference
from stepscope.compare.result import NOISE, TOO_FEW, Difference
from stepscope.compare.samples import COST_SHARE, OVERLAP, STEP, samples_of
from stepscope.compare.wording import enough, untold
from stepscope.stats import median
from stepscope.units import milliseconds, percent

EXPOSED = "grad.exposed_ms"

_NOUNS = {
    COST_SHARE: "cost of communication",
    EXPOSED: "exposed gradient communication",
    OVERLAP: "overlap with backward",
}
_OF = "median of steps"
"""What each figure is here: the overlap of a verdict and the times of its table are of all steps together, and so others."""


@dataclass(frozen=True, slots=True)
class Held:
    """One figure held against the baseline's. failed: it got worse by more than tolerated, and not by chance."""

    figure: str
    sentence: str
    failed: bool = False
    untold: bool = False
    """Nothing can be said of it, or it got worse by more than tolerated and may still be noise."""


def hold(baseline: Audit, made: Audit, tolerance: float) -> list[Held]:
    """Cost share, exposed gradient time and overlap, each against the baseline's.

    tolerance: in points: of the step for the cost, of the baseline's step for the exposed time, of gradient communication
    for the overlap. A figure fails where its worsening exceeds the tolerance and its 95 % interval leaves zero out, and
    where the baseline has it and this audit has not.
    """
    before, after = samples_of(baseline), samples_of(made)
    step = median(before[STEP]) if STEP in before else None
    held = []
    for name in _NOUNS:
        if name not in before and name not in after:
            continue
        one = difference(name, before.get(name, ()), after.get(name, ()))
        held.append(_held(one, step, tolerance))
    return held


def _held(one: Difference, step: float | None, tolerance: float) -> Held:
    noun = _NOUNS[one.figure]
    if one.b is None:
        return Held(one.figure, f"{noun}: the baseline has it, and this audit does not", failed=True)
    if one.a is None:
        return Held(one.figure, f"{noun}: the baseline does not have it", untold=True)
    values = f"{noun} ({_OF}): {_value(one, one.a)} became {_value(one, one.b)}"
    if one.says == TOO_FEW:
        failed = (one.b - one.a) * _worse(one, step) > tolerance
        return Held(one.figure, f"{values}; {untold(one)}", failed=failed, untold=not failed)
    return _judged(one, f"{values}, {_points(one, step)}", (one.change or 0.0) * _worse(one, step), tolerance)


def _judged(one: Difference, values: str, worsening: float, tolerance: float) -> Held:
    """worsening: in shares of the whole that the tolerance is of, positive where it got worse."""
    if not worsening:
        return Held(one.figure, f"{values}: no difference")
    way = "worse" if worsening > 0 else "better"
    if one.says == NOISE:
        return Held(
            one.figure,
            f"{values}: {_plain_points(abs(worsening))} {way}, but within noise ({enough(one)} would tell)",
            untold=worsening > tolerance,
        )
    limit = f"the tolerance of {_plain_points(tolerance, 'g')}"
    if worsening <= 0:
        return Held(one.figure, f"{values}: better")
    if worsening <= tolerance:
        return Held(one.figure, f"{values}: worse, within {limit}")
    return Held(one.figure, f"{values}: worse by more than {limit}", failed=True)


def _points(one: Difference, step: float | None) -> str:
    """The change as its value changes, up or down, with its interval."""
    assert one.change is not None and one.change_ci is not None
    scale = 100 * abs(_worse(one, step))
    low, high = (scale * end for end in one.change_ci)
    of_step = " of the baseline's step" if one.figure == EXPOSED else ""
    return f"{scale * one.change:+.1f} points{of_step} (95 % interval {low:+.1f} to {high:+.1f})"


def _plain_points(share: float, form: str = ".1f") -> str:
    number = f"{100 * share:{form}}"
    return f"{number} point{'' if number in ('1', '1.0') else 's'}"


def _worse(one: Difference, step: float | None) -> float:
    """From a figure's own unit to a share of what the tolerance is of, positive where more is worse."""
    if one.figure == EXPOSED:
        assert step
        return 1 / step
    return -1.0 if one.figure == OVERLAP else 1.0


def _value(one: Difference, value: float) -> str:
    return percent(value) if one.unit == "share" else milliseconds(value)
