"""The bucket cap that would make the recorded steps shorter, if one would by more than the noise (METRICS, Prediction)."""

from __future__ import annotations

from stepscope.audit import result
from stepscope.audit.case import Case
from stepscope.audit.causes.finding import MINIMUM_SHARE
from stepscope.audit.outcome import Rebucketing
from stepscope.audit.rebucket import best_cap, link_of
from stepscope.replay.assignment import MIB
from stepscope.stats import bootstrap_interval, median
from stepscope.units import ns_to_ms


def recommend(case: Case) -> result.Recommendation | None:
    """None where no cap gains anything, one recorded step does not tell, or DDP's reducer did not reduce the gradients.

    Only the one cap that schedules of the buckets point to is replayed: replays are what an audit takes its time for.
    """
    step_ms = case.step_ms
    if step_ms is None or not _much_is_exposed(case, step_ms):
        return None
    cutting, link = Rebucketing(case), link_of(case)
    cap = best_cap(case, cutting.rounds, link) if link is not None else None
    if link is None or cap is None:
        return None
    rates = cutting.rates(link.time)
    outcome = cutting.cut([cap * MIB], link.time, rates)
    if outcome is None:
        return None
    now = cutting.as_they_are(link.time, rates)
    gains = [now[number] - taken for number, taken in outcome.steps.items()]
    gain, interval = median(gains), bootstrap_interval(gains)
    if interval is None or interval[0] <= 0 or ns_to_ms(gain) < MINIMUM_SHARE * step_ms:
        return None
    return result.Recommendation(
        bucket_cap_mb=cap,
        buckets=len(outcome.bytes),
        step_ms=step_ms - ns_to_ms(gain),
        gain_ms=ns_to_ms(gain),
        gain_ms_ci=(ns_to_ms(interval[0]), ns_to_ms(interval[1])),
    )


def _much_is_exposed(case: Case, step_ms: float) -> bool:
    """Whether there is enough gradient communication beside no compute for a schedule to win back."""
    exposed = [ns_to_ms(one.step.gradient.exposed) for one in case.rank_steps() if one.step.gradient]
    return bool(exposed) and median(exposed) >= MINIMUM_SHARE * step_ms
