"""Every bucket cap predicted from one recorded run."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from stepscope.audit.cap_rule import Candidate, Choice, choose
from stepscope.audit.case import Case
from stepscope.audit.outcome import Outcome, Rebucketing, host_time, unrecorded_step
from stepscope.audit.rebucket import Timing, link_of
from stepscope.errors import InputError
from stepscope.predict.case import read_case
from stepscope.predict.result import Prediction
from stepscope.replay.assignment import MIB
from stepscope.stats import bootstrap_interval, median
from stepscope.units import NS_PER_MS


def bucket_caps(run: str | Path, caps_mb: Sequence[float]) -> list[Prediction]:
    """What a step takes with each `bucket_cap_mb`, in the order given, on the link and the ranks of the run.

    run: a run directory of `stepscope run`, or traces. Raises InputError for caps that are not above 0, and for a run whose
    gradients DDP did not reduce or that did not record them.
    """
    check_caps(caps_mb)
    return CapPredictor(read_case(run)).predict(caps_mb)


def check_caps(caps_mb: Sequence[float]) -> None:
    """Raise InputError for a cap that is not above 0."""
    if any(not cap > 0 for cap in caps_mb):
        raise InputError(
            f"a bucket cap of {min(caps_mb):g} MiB is impossible; give sizes above 0, such as 1,5,25"
        )


class CapPredictor:
    """Predicts from one case. Raises InputError where it holds no DDP step that can be cut anew."""

    def __init__(
        self,
        case: Case,
        time: Timing | None = None,
        *,
        own: bool = True,
        added: float = 0.0,
        own_time: Timing | None = None,
    ) -> None:
        """time: what messages take instead of what the run's took. own: it is the run's, whose transfers set its level.

        added: ns that every predicted step takes beyond that. own_time: what the run's took, where more is known than it says.
        """
        link = link_of(case)
        plain = Rebucketing(case)
        if link is None or not plain.steps:
            raise InputError(why_not(case))
        own_time = own_time or link.time
        own_rates = plain.rates(own_time)
        recorded = plain.recorded()
        self.recorded = median(list(recorded.values()))
        self.cutting = Rebucketing(case, host_time=host_time(case))
        as_recorded = self.cutting.as_they_are(own_time, own_rates)
        self.measured = unrecorded_step(case) or self.recorded
        self.exposed = exposed_ns(case, plain.steps)
        self._time = time or own_time
        self._rates = own_rates if own else dict.fromkeys(own_rates, 1.0)
        self._cut: dict[float, Outcome | None] = {}
        self._now = as_recorded if time is None else self.cutting.as_they_are(self._time, self._rates)
        self._most = self.cutting.most(self._now, as_recorded)
        self._longer = median([now - as_recorded[number] for number, now in self._now.items()])
        self.step = self.measured + added + self._longer
        """In the recorded buckets under the same what-if; ns."""

    def predict(self, caps_mb: Sequence[float]) -> list[Prediction]:
        """One prediction a cap, in the order given."""
        return [self._prediction(cap, outcome) for cap, outcome in self._cuts(caps_mb)]

    def choose(self, caps_mb: Sequence[float]) -> Choice:
        """Which of the caps to take."""
        return choose(self.candidates(caps_mb), self.step, self.cutting.present)

    def candidates(self, caps_mb: Sequence[float]) -> list[Candidate]:
        """What each cap gains on the recorded buckets."""
        return [
            Candidate(cap, one.bytes, one.gains(self._now, self._most)) for cap, one in self._cuts(caps_mb)
        ]

    def off_by(self, caps: Sequence[float]) -> float | None:
        """How much longer the recorded caps (bytes), cut anew, make the step than the recorded buckets; ns."""
        outcome = self.cutting.cut(caps, self._time, self._rates)
        return (
            None
            if outcome is None
            else -median([self._now[number] - taken for number, taken in outcome.steps.items()])
        )

    def _cuts(self, caps_mb: Sequence[float]) -> list[tuple[float, Outcome]]:
        for cap in caps_mb:
            if cap not in self._cut:
                self._cut[cap] = self.cutting.cut([cap * MIB], self._time, self._rates)
        found = [(cap, self._cut[cap]) for cap in caps_mb]
        return [(cap, outcome) for cap, outcome in found if outcome is not None]

    def best_schedule(self) -> Prediction:
        """Every gradient sent the moment it is there, without latency: what no cap can beat."""
        base = self._time(0)
        outcome = self.cutting.cut([1], lambda size: max(0.0, self._time(size) - base), self._rates)
        if outcome is None:
            raise InputError(
                "the ranks' gradients differ in number or size; predict needs the same model on every rank"
            )
        return self._prediction(0.0, outcome)

    def present(self, bucket_bytes: list[int], cap_mb: float) -> Prediction:
        """The recorded buckets, on the link predicted for."""
        return self._prediction(cap_mb, Outcome(bucket_bytes, self._now, None))

    def _prediction(self, cap: float, outcome: Outcome) -> Prediction:
        gains = list(outcome.gains(self._now, self._most).values())
        gain, interval = median(gains), bootstrap_interval(gains)
        exposed = max(0.0, self.exposed + self._longer - gain)
        return Prediction(
            bucket_cap_mb=cap,
            bucket_bytes=outcome.bytes,
            step_ms=(self.step - gain) / NS_PER_MS,
            exposed_ms=exposed / NS_PER_MS,
            floor_ms=None if outcome.floor is None else min(outcome.floor, exposed) / NS_PER_MS,
            gain_ms=gain / NS_PER_MS,
            gain_ms_ci=(interval[0] / NS_PER_MS, interval[1] / NS_PER_MS) if interval else None,
        )


def exposed_ns(case: Case, steps: Sequence[int]) -> float:
    """Exposed gradient communication of a step as recorded: median over steps of the mean over ranks; ns."""
    by_step: dict[int, list[int]] = {}
    for one in case.rank_steps():
        if one.number in steps and one.step.gradient is not None:
            by_step.setdefault(one.number, []).append(one.step.gradient.exposed)
    return median([sum(ranks) / len(ranks) for ranks in by_step.values()])


def why_not(case: Case) -> str:
    """Why nothing can be predicted from a case, and what to do."""
    if not case.graphs:
        return "there is no valid step to predict from; record later steps of a DDP job on two ranks or more"
    if not any(one.step.buckets for one in case.rank_steps()):
        return (
            "no gradients are reduced in the recorded steps; predict needs a run of DDP on two ranks or more"
        )
    return (
        "the recorded steps do not tell which gradients DDP's reducer put into its buckets; predict needs a DDP "
        "run recorded with shapes, as `stepscope run` does"
    )
