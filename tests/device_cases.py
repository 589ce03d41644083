"""Simulated and hand-built device traces as detectors get them."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from build_trace import TraceBuilder
from stepscope.audit.basis import prepare
from stepscope.audit.case import Case
from stepscope.audit.result import Thresholds
from stepscope.audit.step import measure_step
from stepscope.ranks.pairing import pair
from stepscope.replay.graph import build
from stepscope.trace.classify import classify
from stepscope.trace.reader import read
from stepscope.trace.recording import Recording
from stepscope_workloads.simulate import Simulation


def case_of(recordings: Sequence[Recording], run: Mapping[str, Any] | None = None) -> Case:
    """What a detector gets of some recordings."""
    pairing = pair(recordings)
    bases = prepare(recordings, pairing, run)
    parts = [(basis, [measure_step(basis, w) for w in basis.recording.steps.windows]) for basis in bases]
    valid = {s.window.number for basis, steps in parts for s in steps if s.window.number not in basis.invalid}
    drawn = {number: build(recordings, pairing, number) for number in sorted(valid)}
    graphs = {number: graph for number, graph in drawn.items() if graph is not None}
    return Case(recordings, parts, pairing, graphs, Thresholds(), run)


def simulated(simulation: Simulation, folder: Path, run: Mapping[str, Any] | None = None) -> Case:
    """A simulated job's case."""
    return case_of(list(_written(simulation.documents(), folder)), run)


def built(traces: Iterable[TraceBuilder], folder: Path, run: Mapping[str, Any] | None = None) -> Case:
    """The case of traces laid out by hand."""
    return case_of(
        [classify(read(trace.write(folder / f"rank{k}.json"))) for k, trace in enumerate(traces)], run
    )


def recorded(folder: Path) -> Case:
    """The case of a folder of real traces."""
    return case_of([classify(read(path)) for path in sorted(folder.glob("*.json.gz"))])


def _written(documents: Iterable[dict[str, Any]], folder: Path) -> Iterable[Recording]:
    for rank, document in enumerate(documents):
        path = folder / f"rank{rank}.pt.trace.json.gz"
        path.write_bytes(gzip.compress(json.dumps(document).encode(), 1))
        yield classify(read(path))
