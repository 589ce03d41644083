"""From a sweep's runs to its result: a row for each candidate, the best one, and what to do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import NamedTuple

import msgspec

from stepscope import __version__
from stepscope.budget.calibrated import Model as RingModel
from stepscope.budget.measured import Calibration
from stepscope.stats import bootstrap_interval
from stepscope.sweep.compare import Ranking, rank
from stepscope.sweep.model import KIND, model_of, modelled, usable
from stepscope.sweep.plan import AS_IN_SCRIPT, BUCKET_CAP, Plan, Slot, but_for_cap, runs_of, stages
from stepscope.sweep.result import SCHEMA, Best, Model, Row, Sweep
from stepscope.sweep.results import FAILED, MEASURED, NO_DDP, Figures, RunResult
from stepscope.sweep.wording import explain, label, next_step

ACCUMULATE = "accumulate"
NOT_RUN = "not-run"
MIB = 2**20


class Predicted(NamedTuple):
    """A candidate's step as predicted from a run of another one, or its own. link: what says how long its buckets take."""

    folder: str
    step_ms: float
    link: str


@dataclass(frozen=True, kw_only=True)
class Made:
    """What there is of a sweep."""

    plan: Plan
    repeat: int
    results: Sequence[RunResult]
    command: list[str]
    folder: str
    fabric: str | None = None
    stopped: str | None = None
    calibration: Calibration | None = None
    predictions: Mapping[int, Predicted] = field(default_factory=dict)
    """By candidate."""

    @property
    def by_candidate(self) -> list[Candidate]:
        """The runs of each candidate; a failure that a later run made good is forgotten."""
        found = []
        for knobs in self.plan.candidates:
            latest = {one.round: one for one in self.results if one.knobs == knobs}
            found.append(
                Candidate(knobs, [latest[number] for number in sorted(latest)], self._other_cap(knobs))
            )
        return found

    def _other_cap(self, knobs: dict[str, str]) -> RunResult | None:
        """A run without DDP at another bucket cap, which tells of this one as well."""
        return next(
            (
                one
                for one in self.results
                if one.status == NO_DDP and but_for_cap(one.knobs) == but_for_cap(knobs)
            ),
            None,
        )


@dataclass(frozen=True)
class Candidate:
    """A combination of knobs and its runs, by round. without_ddp: a run that shows that its bucket cap changes nothing."""

    knobs: dict[str, str]
    runs: list[RunResult]
    without_ddp: RunResult | None = None

    @property
    def measured(self) -> list[RunResult]:
        """The runs with times."""
        return [run for run in self.runs if run.status != FAILED]

    @property
    def figures(self) -> list[Figures]:
        """What the audits of the runs say."""
        return [run.figures for run in self.measured if run.figures is not None]

    @property
    def status(self) -> str:
        """That of its worst run; no run at all is a status of its own."""
        found = {run.status for run in self.runs} | ({NO_DDP} if self.without_ddp else set())
        return next((status for status in (FAILED, NO_DDP, MEASURED) if status in found), NOT_RUN)

    @property
    def micro_batches(self) -> int:
        """In a step, as far as the sweep sets it."""
        return int(self.knobs.get(ACCUMULATE, "1"))


def build(made: Made) -> Sweep:
    """The result of what there is. Raises InputError where a calibration was given that has no fit."""
    candidates = made.by_candidate
    model = model_of(made.calibration, [one for candidate in candidates for one in candidate.figures])
    ranking = _ranking(candidates)
    rows = [
        msgspec.structs.replace(
            _row(number, candidate, ranking, model, made.predictions.get(number)),
            label=label(made.plan.knobs, candidate.knobs),
        )
        for number, candidate in enumerate(candidates)
    ]
    best = None if ranking is None else _best(rows, ranking)
    known = next((one for candidate in candidates for one in candidate.figures), None)
    replaced = {cap for candidate in candidates for one in candidate.figures for cap in one.replaced_caps_mb}
    planned = runs_of(stages(len(candidates), made.repeat, halving=made.plan.halving))
    sweep = Sweep(
        schema=SCHEMA,
        stepscope=__version__,
        command=made.command,
        script=made.plan.script,
        folder=made.folder,
        world_size=known.world_size if known else None,
        backend=known.backend if known else None,
        knobs=made.plan.knobs,
        fabric=made.fabric,
        warmup=made.plan.warmup,
        steps=made.plan.steps,
        repeat=made.repeat,
        seed=made.plan.seed,
        halving=made.plan.halving,
        runs=len(made.results),
        runs_saved=len(candidates) * made.repeat - planned if made.plan.halving else None,
        replaced_caps_mb=sorted(replaced),
        rows=rows,
        best=best,
        model=None if model is None else _model(model),
        stopped=made.stopped,
        explanation="",
        next_step="",
    )
    return msgspec.structs.replace(sweep, explanation=explain(sweep), next_step=next_step(sweep))


def _ranking(candidates: Sequence[Candidate]) -> Ranking | None:
    times = {
        Slot(run.round, number): run.time_ms / candidate.micro_batches
        for number, candidate in enumerate(candidates)
        if candidate.status == MEASURED
        for run in candidate.runs
    }
    return rank(times) if times else None


def _row(
    number: int,
    candidate: Candidate,
    ranking: Ranking | None,
    model: RingModel | None,
    predicted: Predicted | None,
) -> Row:
    shown = [*([candidate.without_ddp] if candidate.without_ddp else []), *candidate.runs]
    messages = [run.message for run in shown if run.message]
    row = Row(
        knobs=candidate.knobs,
        status=candidate.status,
        message=messages[-1] if messages else None,
        bucket_cap_mb=_bucket_cap(candidate),
        runs=len(candidate.measured),
        run_step_ms=[run.time_ms for run in candidate.measured],
        folders=[run.folder for run in candidate.measured],
        predicted_step_ms=None if predicted is None else predicted.step_ms,
        predicted_from=None if predicted is None else predicted.folder,
        predicted_link=None if predicted is None else predicted.link,
    )
    for changes in (_audited(candidate), _modelled(candidate, model), _ranked(number, candidate, ranking)):
        row = msgspec.structs.replace(row, **changes)
    return row


def _bucket_cap(candidate: Candidate) -> float | None:
    """By DDP itself; before it said anything what was asked for, unless that is the script's own."""
    said = [one.bucket_cap_bytes for one in candidate.figures if one.bucket_cap_bytes is not None]
    asked = candidate.knobs.get(BUCKET_CAP, AS_IN_SCRIPT)
    if said:
        return said[0] / MIB
    return None if asked == AS_IN_SCRIPT else float(asked)


def _audited(candidate: Candidate) -> dict[str, object]:
    figures = candidate.figures
    names = {
        "recorded_ms": "recorded_step_ms",
        **{name: name for name in ("backward_ms", "comm_ms", "exposed_ms", "floor_ms", "overlap_backward")},
    }
    found: dict[str, object] = {}
    for name, field_name in names.items():
        values = [value for one in figures if (value := getattr(one, name)) is not None]
        if values:
            found[field_name] = fmean(values)
    counts = [len(one.bucket_bytes) for one in figures if one.bucket_bytes]
    return found | ({"buckets": counts[0]} if counts else {})


def _modelled(candidate: Candidate, model: RingModel | None) -> dict[str, object]:
    fitting = [one for one in candidate.figures if usable(one)]
    if model is None or not fitting:
        return {}
    one = modelled(model, fitting[0])
    return {
        "model_ms": one.time.ms,
        "latency_share": one.latency_share,
        "bandwidth_bound": one.bandwidth_bound,
    }


def _ranked(number: int, candidate: Candidate, ranking: Ranking | None) -> dict[str, object]:
    """Its time, and how it compares with the best one's; of one that is out of the comparison the time alone."""
    if ranking is None or number not in ranking.times:
        alone = (
            rank({Slot(run.round, 0): run.time_ms for run in candidate.measured})
            if candidate.measured
            else None
        )
        return {} if alone is None else {"step_ms": alone.times[0]}
    factor = candidate.micro_batches
    found: dict[str, object] = {"step_ms": ranking.times[number] * factor}
    if ACCUMULATE in candidate.knobs:
        found["micro_batch_ms"] = ranking.times[number]
    if number in ranking.intervals:
        low, high = ranking.intervals[number]
        found |= {"step_ms_ci": (low * factor, high * factor), "step_ms_ci_over": "runs"}
    elif (interval := bootstrap_interval(candidate.measured[0].step_ms)) is not None:
        found |= {"step_ms_ci": interval, "step_ms_ci_over": "steps"}
    if number == ranking.best:
        return found | {"over_best": 1.0}
    difference = ranking.differences[number]
    return found | {
        "over_best": difference.ratio,
        "over_best_ci": difference.interval,
        "tied": not difference.told_apart,
        "rounds_to_tell": difference.rounds,
    }


def _best(rows: Sequence[Row], ranking: Ranking) -> Best:
    tied = [number for number, row in enumerate(rows) if row.tied]
    row = rows[ranking.best]
    return Best(
        row=ranking.best, knobs=row.knobs, bucket_cap_mb=row.bucket_cap_mb, tied_with=tied, certain=not tied
    )


def _model(model: RingModel) -> Model:
    terms = model.terms(KIND)
    return Model(source=model.name, alpha_us=terms.alpha.us, bandwidth_gb_per_s=terms.rate.gb_per_s)
