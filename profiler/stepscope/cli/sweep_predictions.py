"""What one recorded run of a sweep says of the other bucket caps, beside what was measured of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from stepscope.cli.launching import say
from stepscope.errors import InputError
from stepscope.predict import bucket_caps
from stepscope.sweep.build import Predicted
from stepscope.sweep.plan import AS_IN_SCRIPT, BUCKET_CAP, but_for_cap
from stepscope.sweep.results import MEASURED, RunResult

DDP_DEFAULT_MB = 25.0


def predictions(
    folder: Path, candidates: Sequence[dict[str, str]], results: Sequence[RunResult]
) -> dict[int, Predicted]:
    """Each candidate's step as one run predicts it: a run with the script's own cap, else with that closest to DDP's default.

    The other knobs are the same in that run: each combination of them is predicted from a run of its own.
    """
    found: dict[int, Predicted] = {}
    for group in _groups(candidates):
        source = _source([one for one in results if but_for_cap(one.knobs) == group])
        if source is not None:
            found |= _from_run(folder, candidates, group, source)
    return found


def _groups(candidates: Sequence[dict[str, str]]) -> Iterator[dict[str, str]]:
    seen: list[dict[str, str]] = []
    for knobs in candidates:
        if BUCKET_CAP in knobs and but_for_cap(knobs) not in seen:
            seen.append(but_for_cap(knobs))
    return iter(seen)


def _source(results: Sequence[RunResult]) -> RunResult | None:
    measured = [one for one in results if one.status == MEASURED]
    return min(measured, key=lambda one: (one.round, _far_from_default(one.knobs[BUCKET_CAP])), default=None)


def _far_from_default(cap: str) -> float:
    return -1.0 if cap == AS_IN_SCRIPT else abs(float(cap) - DDP_DEFAULT_MB)


def _from_run(
    folder: Path, candidates: Sequence[dict[str, str]], group: dict[str, str], source: RunResult
) -> dict[int, Predicted]:
    wanted = [
        (number, float(knobs[BUCKET_CAP]))
        for number, knobs in enumerate(candidates)
        if but_for_cap(knobs) == group and knobs[BUCKET_CAP] != AS_IN_SCRIPT
    ]
    try:
        made = bucket_caps(folder / source.folder, [cap for _, cap in wanted])
    except InputError as error:
        say(f"nothing is predicted from {source.folder}: {error}")
        return {}
    steps = {one.bucket_cap_mb: one.step_ms for one in made}
    return {number: Predicted(source.folder, steps[cap]) for number, cap in wanted if cap in steps}
