"""Two audits to a comparison: the one entry to this package."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import SequenceMatcher

from stepscope import __version__
from stepscope.audit.result import Audit, Bucket
from stepscope.compare.alike import not_alike, side_of
from stepscope.compare.result import (
    BETTER,
    CHANGED,
    NOISE,
    TOO_FEW,
    WORSE,
    BucketDifference,
    Comparison,
    Difference,
    FindingChange,
)
from stepscope.compare.samples import (
    COST_SHARE,
    GRADIENT_FIGURES,
    OVERLAP,
    STEP,
    STEP_FIGURES,
    WATERFALL_FIGURES,
    Samples,
    bucket_samples,
    samples_of,
)
from stepscope.compare.settings import changed_settings
from stepscope.compare.wording import summary
from stepscope.stats import FEWEST, difference_interval, enough_steps, median

FIGURES = (
    STEP,
    *STEP_FIGURES,
    COST_SHARE,
    OVERLAP,
    *(f"grad.{name}" for name in GRADIENT_FIGURES),
)
_MORE_IS_BETTER = (OVERLAP, "hidden_share")
_NEITHER = ("comm_ms", "compute_ms", "grad.comm_ms", "grad.hidden_backward_ms", "grad.hidden_other_ms")
"""Less of these is no gain by itself, nor is more hidden time where there is more to hide: what counts is the step, and what of
the communication shows."""


def compare(a: Audit, b: Audit, names: tuple[str, str]) -> Comparison:
    """What changed from a to b; names: where each came from, for people."""
    samples = samples_of(a), samples_of(b)
    figures = _differences(FIGURES, *samples)
    sides = side_of(a, names[0]), side_of(b, names[1])
    return Comparison(
        stepscope=__version__,
        a=sides[0],
        b=sides[1],
        summary=summary(*sides, figures),
        changed=changed_settings(a, b, sides),
        warnings=not_alike(a, b, *sides),
        figures=figures,
        waterfall=[one for one in _differences(WATERFALL_FIGURES, *samples) if one.a or one.b],
        buckets=_buckets(a, b),
        findings=_findings(a, b),
    )


def difference(figure: str, a: Sequence[float], b: Sequence[float]) -> Difference:
    """One figure whose values over the steps are known on both sides, or on one."""
    unit = "ms" if figure.endswith("_ms") else "share"
    middle_a, middle_b = (median(values) if values else None for values in (a, b))
    if middle_a is None or middle_b is None:
        return Difference(figure=figure, unit=unit, a=middle_a, b=middle_b, says=TOO_FEW)
    change, interval = middle_b - middle_a, difference_interval(a, b)
    says = _says(figure, change, interval, min(len(a), len(b)))
    return Difference(
        figure=figure,
        unit=unit,
        a=middle_a,
        b=middle_b,
        change=change,
        change_ci=interval,
        says=says,
        steps_needed=enough_steps(change, interval, len(a), len(b)) if says == NOISE and interval else None,
    )


def _says(figure: str, change: float, interval: tuple[float, float] | None, steps: int) -> str:
    if interval is None or steps < FEWEST:
        return TOO_FEW
    if interval[0] <= 0 <= interval[1]:
        return NOISE
    if figure in _NEITHER:
        return CHANGED
    return BETTER if (change > 0) == (figure in _MORE_IS_BETTER) else WORSE


def _differences(names: Sequence[str], a: Samples, b: Samples) -> list[Difference]:
    """Those of the figures that a side has."""
    return [difference(name, a.get(name, ()), b.get(name, ())) for name in names if name in a or name in b]


def _buckets(a: Audit, b: Audit) -> list[BucketDifference]:
    """Every bucket of both sides in launch order; those of the same size, in the same order, are the same bucket."""
    samples = bucket_samples(a), bucket_samples(b)
    rows = []
    for one, other in _matched(a.buckets, b.buckets):
        both = one is not None and other is not None
        first = one or other
        rows.append(
            BucketDifference(
                a=one.bucket if one else None,
                b=other.bucket if other else None,
                bytes=first.bytes if first else None,
                bytes_b=other.bytes if one and other and one.bytes != other.bytes else None,
                figures=_bucket_figures(samples[0].get(one.bucket, {}), samples[1].get(other.bucket, {}))
                if both and one and other
                else [],
            )
        )
    return rows


def _bucket_figures(a: Samples, b: Samples) -> list[Difference]:
    return _differences(("duration_ms", "exposed_ms", "hidden_share"), a, b)


def _matched(a: Sequence[Bucket], b: Sequence[Bucket]) -> list[tuple[Bucket | None, Bucket | None]]:
    """As many on both sides: by position. Else the longest runs of equal sizes, and the rest on its own."""
    if len(a) == len(b):
        return list(zip(a, b, strict=True))
    blocks = SequenceMatcher(None, [one.bytes for one in a], [one.bytes for one in b], autojunk=False)
    rows: list[tuple[Bucket | None, Bucket | None]] = []
    for operation, a_from, a_to, b_from, b_to in blocks.get_opcodes():
        if operation == "equal":
            rows += zip(a[a_from:a_to], b[b_from:b_to], strict=True)
        else:
            rows += [(one, None) for one in a[a_from:a_to]]
            rows += [(None, one) for one in b[b_from:b_to]]
    return rows


def _findings(a: Audit, b: Audit) -> list[FindingChange]:
    """New ones first, then those that are gone, then those that stay."""
    mine = {one.cause: one.cost_ms for one in a.findings}
    theirs = {one.cause: one.cost_ms for one in b.findings}
    rows = [
        FindingChange(cause=cause, change="new", b_cost_ms=theirs[cause])
        for cause in theirs
        if cause not in mine
    ]
    rows += [
        FindingChange(cause=cause, change="gone", a_cost_ms=mine[cause])
        for cause in mine
        if cause not in theirs
    ]
    rows += [
        FindingChange(cause=cause, change="stays", a_cost_ms=mine[cause], b_cost_ms=theirs[cause])
        for cause in theirs
        if cause in mine
    ]
    return rows
