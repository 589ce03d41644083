"""Recordings to an audit: the one entry to this package."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from stepscope import __version__
from stepscope import intervals as iv
from stepscope.audit import result
from stepscope.audit.basis import Basis, prepare, replayed_steps
from stepscope.audit.beside import contention_apart
from stepscope.audit.buckets import bucket_table, collective_rows
from stepscope.audit.case import Case
from stepscope.audit.causes import find_causes
from stepscope.audit.causes.unused import needless_search
from stepscope.audit.gates import gates_of
from stepscope.audit.overlap import comm_union, measure
from stepscope.audit.recommend import recommend
from stepscope.audit.replayed import Priced, StepGraphs, priced_steps
from stepscope.audit.result import Audit, Thresholds, Verdict
from stepscope.audit.ring import ring_models
from stepscope.audit.step import MeasuredStep, measure_step, plain_step, starved_share
from stepscope.audit.verdict import Sample, Setting, judge
from stepscope.audit.wording import INCONCLUSIVE, INFERRED, PARTLY_RECORDED, RECORDED, first_fix, try_cap
from stepscope.ranks.clocks import Clock, fit_clocks
from stepscope.ranks.pairing import Pairing, pair
from stepscope.ranks.representatives import among, representatives
from stepscope.ranks.stragglers import Lateness, find_stragglers
from stepscope.replay.timeline import Timeline
from stepscope.stats import median
from stepscope.trace.recording import Phase, Recording
from stepscope.units import ns_to_ms


def audit(
    recordings: Sequence[Recording],
    thresholds: Thresholds | None = None,
    run: dict[str, Any] | None = None,
    warnings: Sequence[result.Warning] = (),
) -> Audit:
    """Audit one or more ranks' recordings of the same job.

    run: run.json of a recorded run, passed through. warnings: of whoever read the files, put before the audit's own.
    """
    thresholds = thresholds or Thresholds()
    pairing = pair(recordings)
    bases = prepare(recordings, pairing, run)
    chosen = set(replayed_steps(bases))
    few = representatives(len(recordings), pairing)
    parts, case = _measured(bases, pairing, chosen, few, (thresholds, run))
    samples = [sample for sample in _samples(case.parts) if sample.step.window.number in chosen]
    counted = [sample.step for sample in _samples(parts) if sample.step.window.number in chosen]
    rows = [row for basis in bases for row in collective_rows(basis)]
    findings, failed = find_causes(case)
    advised = recommend(case)
    setting = Setting(
        gates=[*gates_of(recordings), *(doubt.message for doubt in pairing.doubts if doubt.void)],
        any_comm=any(recording.collectives for recording in recordings),
        world_size=_world_size(recordings),
        doubts=pairing.doubts,
        waits=_how_waits_are_known(case.timelines),
        contention=contention_apart(case),
        run=run,
    )
    return Audit(
        stepscope=__version__,
        verdict=_advised(judge(samples, setting, thresholds, counted), findings, advised, run),
        ranks=[_rank(*part, chosen if index in few else set()) for index, part in enumerate(parts)],
        collectives=rows,
        buckets=bucket_table(parts),
        stragglers=[_straggler(recordings, late) for late in find_stragglers(pairing.paired)],
        clocks=[_clock(clock) for clock in fit_clocks(recordings, pairing.paired)],
        ring_models=ring_models(rows, _world_size(recordings)),
        findings=findings,
        recommendation=advised,
        warnings=[
            *warnings,
            *_warnings(recordings),
            *_doubts(pairing),
            *needless_search(case, findings),
            *failed,
        ],
        run=run,
    )


def _doubts(pairing: Pairing) -> list[result.Warning]:
    """What only shows when the files are laid side by side."""
    return [
        result.Warning(code=doubt.code, message=doubt.message, source=", ".join(doubt.sources) or None)
        for doubt in pairing.doubts
    ]


def _how_waits_are_known(timelines: Sequence[Timeline]) -> str | None:
    """Whether those of the GPU recordings were recorded; None without any of them."""
    on_device = [timeline for timeline in timelines if len(timeline.activities)]
    recorded = sum(timeline.synchronisations.recorded for timeline in on_device)
    if not on_device:
        return None
    return RECORDED if recorded == len(on_device) else PARTLY_RECORDED if recorded else INFERRED


def _straggler(recordings: Sequence[Recording], late: Lateness) -> dict[str, Any]:
    return {
        "rank": recordings[late.index].header.rank,
        "last_share": late.last_share,
        "collectives": late.joined,
        "lateness_ms": ns_to_ms(median(late.each)),
        "total_ms": ns_to_ms(late.total),
    }


def _clock(clock: Clock) -> dict[str, Any]:
    return {
        "host": clock.host,
        "offset_ms": ns_to_ms(clock.offset),
        "drift_ppm": clock.drift * 1e6,
        "origin_ns": clock.origin,
        "residual_ms": ns_to_ms(clock.residual),
        "pairs": clock.pairs,
    }


Part = tuple[Basis, list[MeasuredStep]]


def _world_size(recordings: Sequence[Recording]) -> int | None:
    return max((r.header.world_size for r in recordings if r.header.world_size is not None), default=None)


def _advised(
    verdict: Verdict,
    findings: Sequence[result.Finding],
    cap: result.Recommendation | None,
    run: dict[str, Any] | None,
) -> Verdict:
    """The verdict with the costliest cause's fix as what to do next, else with the bucket cap that is predicted to help.

    Where the steps do not tell the label, more of them come first.
    """
    if verdict.cost_share is None or verdict.label == INCONCLUSIVE:
        return verdict
    better = cap is not None and not verdict.host_bound
    fix = first_fix(findings) or (try_cap(cap.bucket_cap_mb, run) if cap is not None and better else None)
    return msgspec.structs.replace(verdict, next_step=fix) if fix else verdict


def _communicating(bases: Sequence[Basis], chosen: set[int]) -> list[int]:
    """Those of the chosen steps in which anything communicated."""
    return sorted(number for number in chosen if any(basis.ops_of.get(number) for basis in bases))


def _only(parts: Sequence[Part], chosen: set[int]) -> list[Part]:
    """The chosen steps and the invalid ones: some causes are why a step is invalid."""
    return [
        (basis, [s for s in steps if s.window.number in chosen or s.window.number in basis.invalid])
        for basis, steps in parts
    ]


def _measured(
    bases: Sequence[Basis],
    pairing: Pairing,
    chosen: set[int],
    few: Sequence[int],
    about: tuple[Thresholds, dict[str, Any] | None],
) -> tuple[list[Part], Case]:
    """All steps of all ranks, and as a case the chosen ones of the few ranks that are replayed."""
    some, pairs = [bases[index] for index in few], among(pairing, few)
    replayed = [basis.recording for basis in some]
    timelines = [Timeline(recording.trace) for recording in replayed]
    graphs = StepGraphs(replayed, pairs, _communicating(some, chosen), timelines)
    of_place = priced_steps(graphs)
    priced = {index: of_place[place] for place, index in enumerate(few)}
    parts = [_measure(basis, priced.get(index, {})) for index, basis in enumerate(bases)]
    case = Case(replayed, _only([parts[index] for index in few], chosen), pairs, graphs, *about, timelines)
    return parts, case


def _measure(basis: Basis, priced: Mapping[int, Priced]) -> Part:
    windows = basis.recording.steps.windows
    return basis, [measure_step(basis, window, priced.get(window.number)) for window in windows]


def _samples(parts: Sequence[tuple[Basis, Sequence[MeasuredStep]]]) -> list[Sample]:
    """The valid steps; the n-th recording of a rank is kept apart from its first."""
    seen: dict[int | None, int] = defaultdict(int)
    samples = []
    for basis, steps in parts:
        rank = basis.recording.header.rank
        window = seen[rank] if rank is not None else 0
        seen[rank] += 1
        for step in steps:
            if step.window.number not in basis.invalid:
                samples.append(Sample(rank, window, step, starved_share(basis, step)))
    return samples


def _rank(basis: Basis, steps: Sequence[MeasuredStep], chosen: set[int]) -> result.Rank:
    recording, header = basis.recording, basis.recording.header
    return result.Rank(
        rank=header.rank,
        world_size=header.world_size,
        backend=header.backend,
        device=recording.device,
        device_name=header.device_names[0] if header.device_names else None,
        host=header.host,
        source=recording.source,
        start_ns=recording.base_ns,
        totals=_totals(basis),
        steps=[plain_step(basis, step, priced=_is_priced(basis, step, chosen)) for step in steps],
    )


def _is_priced(basis: Basis, step: MeasuredStep, chosen: set[int]) -> bool:
    """Whether what communication cost is known of a step: not of a valid one that was left out of the verdict."""
    return step.window.number in chosen or step.window.number in basis.invalid


def _totals(basis: Basis) -> result.Totals:
    recording, unions = basis.recording, basis.unions
    overlap = measure(comm_union(recording.collectives), unions.backward, unions.everything)
    phases = bool((recording.compute.phase != Phase.UNKNOWN).any())
    hidden = overlap.hidden_backward + overlap.hidden_other
    return result.Totals(
        comm_ms=ns_to_ms(overlap.comm),
        compute_ms=ns_to_ms(iv.total(unions.everything)),
        backward_compute_ms=ns_to_ms(iv.total(unions.backward)) if phases else None,
        hidden_backward_ms=ns_to_ms(overlap.hidden_backward) if phases else None,
        hidden_other_ms=ns_to_ms(overlap.hidden_other) if phases else None,
        hidden_ms=ns_to_ms(hidden),
        exposed_ms=ns_to_ms(overlap.exposed),
        collectives=len(recording.collectives),
        unknown_phase=recording.unknown_phase,
    )


def _warnings(recordings: Sequence[Recording]) -> list[result.Warning]:
    found = [
        result.Warning(code=w.code, message=w.message, source=recording.source)
        for recording in recordings
        for w in recording.warnings
    ]
    unlaunched = [
        result.Warning(
            code="no-launch-records",
            message=f"{r.unknown_phase} activities have no launch record: their phase and step are unknown",
            source=r.source,
        )
        for r in recordings
        if r.unknown_phase
    ]
    return [*found, *unlaunched]
