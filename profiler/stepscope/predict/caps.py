"""Every bucket cap predicted from one recorded run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from stepscope.audit.case import Case
from stepscope.audit.outcome import Outcome, Rebucketing
from stepscope.audit.rebucket import Link, link_of
from stepscope.errors import InputError
from stepscope.predict.case import read_case
from stepscope.predict.result import Prediction
from stepscope.replay.assignment import MIB
from stepscope.stats import bootstrap_interval, median
from stepscope.units import NS_PER_MS

_CLOSE_ENOUGH = 1e-3
_SLOWEST, _FASTEST = 2.0, 0.25
"""Within these factors host time is looked for that makes a replayed step as long as an unrecorded one."""


def bucket_caps(run: str | Path, caps_mb: Sequence[float], *, link: Link | None = None) -> list[Prediction]:
    """What a step takes with each `bucket_cap_mb`, in the order given.

    run: a run directory of `stepscope run`, or traces. link: what a bucket takes, instead of what the run's own took. Raises
    InputError for caps that are not above 0, and for a run whose gradients DDP did not reduce or did not record.
    """
    if any(not cap > 0 for cap in caps_mb):
        raise InputError(
            f"a bucket cap of {min(caps_mb):g} MiB is impossible; give sizes above 0, such as 1,5,25"
        )
    return CapPredictor(read_case(run), link).predict(caps_mb)


class CapPredictor:
    """Predicts from one case. Raises InputError where it holds no DDP step that can be cut anew."""

    def __init__(self, case: Case, link: Link | None = None) -> None:
        self.link = link or link_of(case)
        recorded = Rebucketing(case, self.link.time) if self.link else None
        if recorded is None or not recorded.steps:
            raise InputError(why_not(case))
        assert self.link is not None
        self.measured = {number: _measured(case, number) for number in recorded.steps}
        self.unrecorded = _unrecorded_ns(case.run)
        host_time = 1.0 if self.unrecorded is None else _host_time(case, self.link, self.unrecorded)
        self.cutting = Rebucketing(case, self.link.time, host_time=host_time)
        self._now = self.cutting.now()
        self._step = self.unrecorded or median(list(self.measured.values()))
        self._exposed = _exposed(case, recorded.steps)

    def predict(self, caps_mb: Sequence[float]) -> list[Prediction]:
        """One prediction a cap, in the order given."""
        found = [(cap, self.cutting.cut([cap * MIB])) for cap in caps_mb]
        return [self._prediction(cap, outcome) for cap, outcome in found if outcome is not None]

    def _prediction(self, cap: float, outcome: Outcome) -> Prediction:
        gains = [self._now[number] - taken for number, taken in outcome.steps.items()]
        gain, interval = median(gains), bootstrap_interval(gains)
        return Prediction(
            bucket_cap_mb=cap,
            bucket_bytes=outcome.bytes,
            step_ms=(self._step - gain) / NS_PER_MS,
            exposed_ms=max(0.0, self._exposed - gain) / NS_PER_MS,
            floor_ms=outcome.floor / NS_PER_MS,
            gain_ms=gain / NS_PER_MS,
            gain_ms_ci=(interval[0] / NS_PER_MS, interval[1] / NS_PER_MS) if interval else None,
        )


def _measured(case: Case, number: int) -> float:
    walls = case.graphs[number].pace()
    return sum(walls.values()) / len(walls)


def _exposed(case: Case, steps: Sequence[int]) -> float:
    """Exposed gradient communication of a step as recorded; ns."""
    by_step: dict[int, list[int]] = {}
    for one in case.rank_steps():
        if one.number in steps and one.step.gradient is not None:
            by_step.setdefault(one.number, []).append(one.step.gradient.exposed)
    return median([sum(ranks) / len(ranks) for ranks in by_step.values()])


def _unrecorded_ns(run: Mapping[str, Any] | None) -> float | None:
    """A step without the profiler in the same run; None where the run does not tell."""
    cost = (run or {}).get("profiler_cost")
    return cost["unprofiled_ms"] * NS_PER_MS if cost else None


def _host_time(case: Case, link: Link, unrecorded: float) -> float:
    """The factor on what host threads do that makes the replayed step as long as an unrecorded one.

    Recording slows hosts, not the link. On a device, whose time is not the host's, nothing is changed.
    """
    if any(recording.device != "cpu" for recording in case.recordings):
        return 1.0
    low, high = _FASTEST, _SLOWEST
    while high - low > _CLOSE_ENOUGH:
        middle = (low + high) / 2
        if median(list(Rebucketing(case, link.time, host_time=middle).now().values())) < unrecorded:
            low = middle
        else:
            high = middle
    return (low + high) / 2


def why_not(case: Case) -> str:
    """Why nothing can be predicted from a case, and what to do."""
    if not case.graphs:
        return "there is no valid step with communication to predict from; record later steps of a DDP job"
    ops = [op for one in case.rank_steps() for op, _ in one.step.buckets]
    if not ops:
        return (
            "no gradients are reduced in the recorded steps; predict needs a run of DDP on two ranks or more"
        )
    return (
        "the recorded steps do not tell which gradients DDP's buckets hold; predict needs a DDP run, "
        "recorded with shapes (`stepscope run` does)"
    )
