"""The label of a bare rule, and the verdict that can be defended; two answers, kept apart."""

from __future__ import annotations

from stepscope.budget.fixes import efficiency
from stepscope.budget.quantities import Time
from stepscope.budget.result import Heuristic, Ring, Verdict
from stepscope.budget.setting import Setting
from stepscope.units import percent

HALF = 0.5
"""The rule of thumb: communication over this share of the step."""

COST_SHARE = COMM_SHARE = 0.10
"""As in a measured verdict: what sticks out, over the step; and all communication, over the compute."""

LEAST_LEFT, MOST_LEFT = 1 / 4, 1 / 2
"""Share of communication that stays exposed in practice although it would fit: a rule of thumb, and no result of the model."""

_GRID = 20
"""Realistic efficiencies are said to 5 %, which is finer than they are known."""


def heuristic(share: float) -> Heuristic:
    """What the share of the step alone is called."""
    label = "communication-bound" if share > HALF else "not communication-bound"
    return Heuristic(label=label, threshold=HALF)


def no_communication() -> Verdict:
    """One rank has nobody to talk to."""
    return Verdict(
        label="no communication",
        reason="One rank alone reduces nothing: there is no message, no bucket and no overlap to budget.",
    )


def verdict(setting: Setting, ring: Ring) -> Verdict:
    """Does it fit behind backward, how closely, and what is left at best."""
    left = ring.least_exposed / (setting.step + ring.least_exposed)
    where = _fit(setting, ring) + _rest(setting, ring)
    if left > COST_SHARE:
        return Verdict(
            label="communication-bound",
            reason=f"{where} Even perfect overlap leaves {ring.least_exposed.ms:.1f} ms exposed: at best "
            f"{percent(ring.ceiling)} efficient.",
        )
    if ring.share < COMM_SHARE:
        return Verdict(
            label="compute-bound",
            reason=f"{where} Nothing hidden at all, the step would still be {percent(ring.exposed_efficiency)} efficient.",
        )
    low, high = realistic(setting.step, ring)
    rather = f" rather than {100 * ring.ceiling:.0f} %" if ring.ceiling > high else ""
    return Verdict(
        label="communication-sensitive",
        reason=f"{where} Overlap can hide most of it, but never the last bucket, and whatever breaks the overlap makes the job "
        f"communication-bound. Expect {_range(low, high)} % efficiency{rather}.",
        realistic=(low, high),
    )


def _range(low: float, high: float) -> str:
    first, last = f"{100 * low:.0f}", f"{100 * high:.0f}"
    return f"about {first}" if first == last else f"{first} to {last}"


def realistic(compute: Time, ring: Ring) -> tuple[float, float]:
    """Efficiency if a half or a quarter of the communication stays exposed, to 5 %; never above the ceiling."""

    def expected(left: float) -> float:
        exposed = max(ring.total * left, ring.least_exposed)
        return min(round(efficiency(compute, exposed) * _GRID) / _GRID, ring.ceiling)

    return expected(MOST_LEFT), expected(LEAST_LEFT)


def _fit(setting: Setting, ring: Ring) -> str:
    """What has to fit in the backward of one micro-batch, which is all of the step's where there is one."""
    times = f"{ring.in_backward.ms:.1f} ms of gradient communication, {ring.cut},"
    window = f"{ring.window.ms:.1f} ms of backward"
    if setting.accumulate > 1:
        window += " of a micro-batch"
    if not ring.fits:
        return f"{times} do not fit in {window}."
    closely = "with a thin margin of" if ring.margin < HALF else "with a margin of"
    return f"{times} fit in {window} {closely} {100 * ring.margin:.0f} %."


def _rest(setting: Setting, ring: Ring) -> str:
    if not ring.outside_backward.base:
        return ""
    whole = "" if setting.accumulate == 1 else f" a step, of {setting.accumulate} micro-batches"
    return f" ZeRO {setting.zero} moves parameters outside of backward for another {ring.outside_backward.ms:.1f} ms{whole}."
