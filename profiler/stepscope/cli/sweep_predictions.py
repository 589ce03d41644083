"""What one recorded run of a sweep says of the other bucket caps, beside what was measured of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from stepscope.audit.case import Case
from stepscope.budget.measured import Calibration
from stepscope.cli.launching import say
from stepscope.errors import InputError
from stepscope.predict.caps import CapPredictor
from stepscope.predict.case import read_case
from stepscope.predict.link import time_by
from stepscope.sweep.build import Predicted
from stepscope.sweep.model import model_of
from stepscope.sweep.plan import AS_IN_SCRIPT, BUCKET_CAP, but_for_cap
from stepscope.sweep.results import MEASURED, RunResult

DDP_DEFAULT_MB = 25.0
FITTED = "a fit of the other candidates' communication"


def predictions(
    folder: Path,
    candidates: Sequence[dict[str, str]],
    results: Sequence[RunResult],
    calibration: Calibration | None = None,
) -> dict[int, Predicted]:
    """Each candidate's step as one run predicts it: a run with the script's own cap, else with that closest to DDP's default.

    What a bucket takes is by the calibration, else fitted to the runs of the *other* candidates: of many sizes, and nothing of
    a candidate's own is in its prediction. The other knobs are the same in all of them.
    """
    found: dict[int, Predicted] = {}
    for group in _groups(candidates):
        same = [one for one in results if one.status == MEASURED and but_for_cap(one.knobs) == group]
        source = _source(same)
        if source is not None:
            asked = {
                number: knobs
                for number, knobs in enumerate(candidates)
                if but_for_cap(knobs) == group and knobs[BUCKET_CAP] != AS_IN_SCRIPT
            }
            found |= _from_run(folder, asked, source, same, calibration)
    return found


def _groups(candidates: Sequence[dict[str, str]]) -> Iterator[dict[str, str]]:
    seen: list[dict[str, str]] = []
    for knobs in candidates:
        if BUCKET_CAP in knobs and but_for_cap(knobs) not in seen:
            seen.append(but_for_cap(knobs))
    return iter(seen)


def _source(measured: Sequence[RunResult]) -> RunResult | None:
    return min(measured, key=lambda one: (one.round, _far_from_default(one.knobs[BUCKET_CAP])), default=None)


def _far_from_default(cap: str) -> float:
    return -1.0 if cap == AS_IN_SCRIPT else abs(float(cap) - DDP_DEFAULT_MB)


def _from_run(
    folder: Path,
    asked: Mapping[int, dict[str, str]],
    source: RunResult,
    measured: Sequence[RunResult],
    calibration: Calibration | None,
) -> dict[int, Predicted]:
    try:
        case = read_case(folder / source.folder)
        found = {
            number: _one(case, knobs, source.folder, measured, calibration) for number, knobs in asked.items()
        }
    except InputError as error:
        say(f"nothing is predicted from {source.folder}: {error}")
        return {}
    return {number: one for number, one in found.items() if one is not None}


def _one(
    case: Case,
    knobs: dict[str, str],
    source: str,
    measured: Sequence[RunResult],
    calibration: Calibration | None,
) -> Predicted | None:
    others = [one.figures for one in measured if one.knobs != knobs and one.figures is not None]
    model = model_of(calibration, others)
    time = None if model is None else time_by(model, others[0].world_size)
    link = "the run's own transfers" if model is None else FITTED if calibration is None else model.name
    made = CapPredictor(case, own_time=time).predict([float(knobs[BUCKET_CAP])])
    return Predicted(source, made[0].step_ms, link) if made else None
