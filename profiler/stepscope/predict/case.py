"""A recorded run as a prediction needs it: its traces as a case to replay, and run.json."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from stepscope.audit.basis import prepare, replayed_steps
from stepscope.audit.case import Case
from stepscope.audit.result import Thresholds
from stepscope.audit.step import measure_step
from stepscope.errors import InputError
from stepscope.executors.ranks import read_ranks
from stepscope.ranks.pairing import pair
from stepscope.ranks.representatives import among, representatives
from stepscope.replay.graph import build
from stepscope.replay.timeline import Timeline
from stepscope.trace.discover import find_traces, of_the_run
from stepscope.trace.files import holds, located, reading_errors, reason
from stepscope.trace.recording import Recording

RUN_FILE = "run.json"


def read_case(path: str | Path, progress: Callable[[int, int, str], None] | None = None) -> Case:
    """The case of a run directory, a trace, or a folder of traces; raises InputError where there is none to read.

    progress: called with files read, files in all, and what is done now.
    """
    run = located(path) / RUN_FILE
    described = holds(located(path), RUN_FILE)
    try:
        about = msgspec.json.decode(run.read_bytes(), type=dict[str, object]) if described else None
    except _unreadable() as error:
        raise InputError(
            f"cannot read {run}: {reason(error)}; remove it to predict from the traces alone"
        ) from error
    traces, _ = of_the_run(find_traces([str(path)]), about)
    read = read_ranks(traces, progress=progress)
    for _, missing in read.unreadable:
        raise missing
    return case_of(read.recordings, about)


def _unreadable() -> tuple[type[Exception], ...]:
    return (*reading_errors(), msgspec.DecodeError)


def case_of(recordings: Sequence[Recording], run: dict[str, object] | None) -> Case:
    """Recordings of one job laid out to be replayed: of their ranks and valid steps those that an audit replays."""
    pairing = pair(recordings)
    few = representatives(len(recordings), pairing)
    recordings, pairing = [recordings[index] for index in few], among(pairing, few)
    bases = prepare(recordings, pairing, run)
    chosen = replayed_steps(bases)
    timelines = [Timeline(recording.trace) for recording in recordings]
    drawn = {number: build(recordings, pairing, number, timelines) for number in chosen}
    parts = [
        (basis, [measure_step(basis, w) for w in basis.recording.steps.windows if w.number in chosen])
        for basis in bases
    ]
    graphs = {number: graph for number, graph in drawn.items() if graph is not None}
    return Case(recordings, parts, pairing, graphs, Thresholds(), run, timelines)
