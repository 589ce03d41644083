"""The bucket cap that would make the recorded steps shorter, if one would by more than the noise (METRICS, Prediction)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from stepscope.audit import rebucket, result
from stepscope.audit.cap_rule import CAPS_MIB, Candidate, alike, choose, middle
from stepscope.audit.case import Case, Price, RankStep
from stepscope.audit.causes.finding import MINIMUM_SHARE
from stepscope.audit.causes.rounds import Round
from stepscope.audit.outcome import Outcome, Rebucketing, host_time, unrecorded_step
from stepscope.audit.rebucket import Link, cut, link_of, rate_of, remade, transfers_of, works
from stepscope.audit.schedule import best_schedule
from stepscope.replay.assignment import MIB
from stepscope.replay.change import Segment
from stepscope.stats import bootstrap_interval, median
from stepscope.units import NS_PER_MS, ns_to_ms


@dataclass(frozen=True, slots=True)
class _Advice:
    """The recommendation, and by step what it gains, in ns."""

    told: result.Recommendation
    gains: Mapping[int, float]


def recommend(case: Case) -> result.Recommendation | None:
    """As `predict` has it. None where no cap gains anything, one step does not tell, or DDP did not reduce the gradients."""
    advice = _advice(case)
    return advice.told if advice is not None else None


def _advice(case: Case) -> _Advice | None:
    found: _Advice | None = case.shared("recommendation", lambda: _recommend(case))
    return found


def _recommend(case: Case) -> _Advice | None:
    step_ms, link = case.step_ms, link_of(case)
    if step_ms is None or link is None or not _much_is_exposed(case, step_ms):
        return None
    step = unrecorded_step(case) or step_ms * NS_PER_MS
    speed = host_time(case)
    cutting = Rebucketing(case, host_time=speed)
    if not cutting.rounds:
        return None
    outcomes, gains = _tried(cutting, link, CAPS_MIB)
    candidates = [Candidate(cap, outcomes[cap].bytes, gains[cap]) for cap in outcomes]
    choice = choose(candidates, step, cutting.present)
    if choice.cap_mb is None:
        return None
    each = list(gains[choice.cap_mb].values())
    gain, interval = median(each), bootstrap_interval(each)
    assert interval is not None  # else there is no choice
    told = result.Recommendation(
        bucket_cap_mb=choice.cap_mb,
        buckets=len(outcomes[choice.cap_mb].bytes),
        alike_mb=list(choice.alike_mb),
        step_ms=ns_to_ms(step - gain),
        gain_ms=ns_to_ms(gain),
        gain_ms_ci=(ns_to_ms(interval[0]), ns_to_ms(interval[1])),
        **_parts(case, speed, link, choice.cap_mb, gains[choice.cap_mb]),
    )
    return _Advice(told, gains[choice.cap_mb])


def _tried(
    cutting: Rebucketing, link: Link, caps: Sequence[float]
) -> tuple[dict[float, Outcome], dict[float, dict[int, float]]]:
    """The steps with each cap, and by step what it gains on the recorded buckets; ns."""
    rates = cutting.rates(link.time)
    now = cutting.as_they_are(link.time, rates)
    found = {cap: cutting.cut([cap * MIB], link.time, rates) for cap in caps}
    outcomes = {cap: outcome for cap, outcome in found.items() if outcome is not None}
    most = cutting.most(now, now)
    return outcomes, {cap: outcome.gains(now, most) for cap, outcome in outcomes.items()}


def _parts(case: Case, speed: float, link: Link, cap: float, gains: Mapping[int, float]) -> dict[str, float]:
    """What of a cap's gains in ns by step is no less waiting for transfers: contention, where it is known, and late starts."""
    alone = Rebucketing(case, host_time=speed, contended=False)
    found, quiet = {}, gains
    if Rebucketing(case).slowdown is not None:
        quiet = _tried(alone, link, [cap])[1][cap]
        found["contention_ms"] = _typical(gains) - _typical(quiet)
    instant = _tried(alone, Link(0.0, 0.0), [cap])[1][cap]
    transfers = {number: gain - instant[number] for number, gain in quiet.items()}
    found["late_start_ms"] = _typical(quiet) - _typical(transfers)
    return found


def _typical(gains: Mapping[int, float]) -> float:
    return ns_to_ms(median(list(gains.values())))


def _much_is_exposed(case: Case, step_ms: float) -> bool:
    """Whether there is enough gradient communication beside no compute for a schedule to win back."""
    exposed = [ns_to_ms(one.step.gradient.exposed) for one in case.rank_steps() if one.step.gradient]
    return bool(exposed) and median(exposed) >= MINIMUM_SHARE * step_ms


def best_cap(case: Case, chosen: Mapping[int, Sequence[Round]], link: Link) -> float | None:
    """By the same rule for some rounds of gradients, as the ends of schedules have it; None where no cap gains anything."""
    step_ms = case.step_ms
    if step_ms is None or not chosen:
        return None
    example = next(iter(chosen.values()))[0]
    candidates = [
        Candidate(
            cap,
            cut(case, example, [cap * MIB]).bytes,
            {number: _earlier(case, number, rounds, link, cap) for number, rounds in chosen.items()},
        )
        for cap in CAPS_MIB
    ]
    present = [op.bytes or 0 for op in example.ops] if example.reduced_within else []
    tied = alike(candidates, step_ms * NS_PER_MS, present)
    return middle(tied).cap_mb if tied else None


def _earlier(case: Case, number: int, rounds: Sequence[Round], link: Link, cap: float) -> float:
    """How much earlier the gradients of a step's rounds could have been reduced with a cap; ns, mean over the rounds."""
    work, total = works(case.graphs[number]), 0.0
    for round_ in rounds:
        here = link.slowed(rate_of(round_, work, link.time))
        todo = transfers_of(cut(case, round_, [cap * MIB]), here.time)
        over = max(op.end for op in round_.ops)
        total += max(0.0, over - max(slot.end for slot in best_schedule(todo, lanes=1)))
    return total / len(rounds)


@dataclass(frozen=True, slots=True)
class Remedy:
    """The cap to set against something that some rounds of gradients suffer from, and what it would bring."""

    example: Round
    cap_mb: float
    price: Price | None


def remedy(
    case: Case,
    wanted: Callable[[RankStep], Round | None],
    calls: Mapping[int, Sequence[Segment]] | None = None,
) -> Remedy | None:
    """For the rounds that `wanted` picks: the cap that the audit recommends, else their best; None where none is better.

    calls: by step, what host threads spend on the recorded collectives, and on so many fewer buckets do not. Without them
    the recommendation has the price already, if its steps are those of the rounds: one change, one figure.
    """
    chosen = rebucket.choose(case, wanted)
    link = link_of(case) if chosen else None
    if link is None:
        return None
    example, advice = next(iter(chosen.values()))[0], _advice(case)
    if advice is not None and calls is None and advice.gains.keys() == chosen.keys():
        gains = {number: ns_to_ms(gain) for number, gain in advice.gains.items()}
        return Remedy(example, advice.told.bucket_cap_mb, Price(advice.told.gain_ms, gains))
    cap = advice.told.bucket_cap_mb if advice is not None else best_cap(case, chosen, link)
    if cap is None:
        return None
    spent = calls or {}
    price = case.price(
        lambda graph: remade(
            case, graph, chosen.get(graph.step, []), link, [cap * MIB], spent.get(graph.step, ())
        )
    )
    return Remedy(example, cap, price)
