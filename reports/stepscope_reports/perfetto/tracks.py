"""What an audit says of one file, as events of Chrome's trace format: a process of its own, a thread for each track.

The arguments of a slice are its figures, as audit.json has them. Slices of a thread nest or follow each other, as the
format wants it; what runs at the same time is spread over several threads.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from stepscope.audit.result import Audit, Collective, Finding, Rank, Step
from stepscope.errors import InputError
from stepscope.units import milliseconds, size
from stepscope_reports import figures
from stepscope_reports.perfetto.moving import SORT, Clock, microseconds
from stepscope_reports.terminal import headline

CATEGORY = "stepscope"
"""No category of Kineto's: whoever reads the trace passes over the tracks, as our own reader does."""

IN_FLIGHT = "collectives in flight"

_PROCESS = 2_000_000_000
"""Our processes are numbered from here, apart from the operating system's, the devices' and the renumbered ones."""
_NS_PER_MS = 1e6


@dataclass(frozen=True, slots=True)
class Slice:
    """A named span of a track; start and end in ns from the rank's first event."""

    name: str
    start: int
    end: int
    args: dict[str, Any]


def tracks_of(audit: Audit, rank: Rank, index: int, clock: Clock) -> list[bytes]:
    """The events that show one file's part of the audit. index: which of the audit's files it is."""
    if rank.start_ns is None:
        raise InputError(f"{rank.source}: the audit does not say when its trace began; audit it again")
    writer = _Writer(index, rank.start_ns, clock)
    mine = [one for one in audit.collectives if one.source == rank.source]
    writer.process(f"stepscope: rank {rank.rank}" if rank.rank is not None else "stepscope")
    writer.track("verdict and steps", [*_verdict(audit, rank), *map(_step, rank.steps)])
    writer.track("findings", _findings(audit, rank))
    writer.track("exposed", _exposed(rank))
    writer.lanes("buckets", _buckets(audit, rank))
    writer.lanes("waits", _waits(mine))
    writer.lanes("other communication", [_collective(one.kind, one) for one in mine if not one.gradient])
    writer.count(mine)
    return writer.events


class _Writer:
    """Collects the events of one process."""

    def __init__(self, index: int, start_ns: int, clock: Clock) -> None:
        self.events: list[bytes] = []
        self._pid = _PROCESS + index
        self._sort = index * SORT - 1
        self._start = start_ns
        self._clock = clock
        self._threads = 0

    def process(self, name: str) -> None:
        """Name the process, and sort it before those of its file."""
        self._add("M", "process_name", args={"name": name})
        self._add("M", "process_sort_index", args={"sort_index": self._sort})

    def track(self, name: str, slices: Iterable[Slice]) -> None:
        """A thread of slices that nest or follow each other; none where there is nothing to show."""
        shown = sorted(slices, key=lambda one: (one.start, -one.end))
        if not shown:
            return
        self._threads += 1
        self._add("M", "thread_name", tid=self._threads, args={"name": name})
        self._add("M", "thread_sort_index", tid=self._threads, args={"sort_index": self._threads})
        for one in shown:
            self._add(
                "X",
                one.name,
                tid=self._threads,
                ts=self._at(one.start),
                dur=microseconds(one.end - one.start),
                args=one.args,
            )

    def lanes(self, name: str, slices: Iterable[Slice]) -> None:
        """As many threads as run at the same time."""
        lanes: list[list[Slice]] = []
        for one in sorted(slices, key=lambda one: one.start):
            free = next((lane for lane in lanes if lane[-1].end <= one.start), None)
            if free is None:
                lanes.append([one])
            else:
                free.append(one)
        for number, lane in enumerate(lanes, start=1):
            self.track(name if number == 1 else f"{name} ({number})", lane)

    def count(self, collectives: Iterable[Collective]) -> None:
        """A counter of the collectives that run at a time."""
        changes: dict[int, int] = {}
        for one in collectives:
            start, end = _span(one)
            changes[start] = changes.get(start, 0) + 1
            changes[end] = changes.get(end, 0) - 1
        running = 0
        for time in sorted(changes):
            running += changes[time]
            self._add("C", IN_FLIGHT, ts=self._at(time), args={"collectives": running})

    def _at(self, time: int) -> msgspec.Raw:
        return microseconds(self._clock.place(self._start + time))

    def _add(self, phase: str, name: str, *, args: dict[str, Any], **fields: Any) -> None:
        event = {"ph": phase, "cat": CATEGORY, "name": name, "pid": self._pid, **fields, "args": args}
        self.events.append(msgspec.json.encode(event))


def _ns(time_ms: float) -> int:
    return round(time_ms * _NS_PER_MS)


def _span(one: Collective) -> tuple[int, int]:
    return _ns(one.start_ms), _ns(one.start_ms) + _ns(one.duration_ms)


def _step_span(step: Step) -> tuple[int, int]:
    return _ns(step.start_ms), _ns(step.start_ms) + _ns(step.wall_ms)


def _plain(value: msgspec.Struct, *without: str) -> dict[str, Any]:
    """The figures as audit.json has them."""
    fields: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(value))
    return {name: field for name, field in fields.items() if name not in without}


def _verdict(audit: Audit, rank: Rank) -> Iterator[Slice]:
    """Over all steps of the rank, as they are nested in it."""
    if rank.steps:
        start = min(_step_span(step)[0] for step in rank.steps)
        end = max(_step_span(step)[1] for step in rank.steps)
        yield Slice(headline(audit.verdict), start, end, _plain(audit.verdict))


def _step(step: Step) -> Slice:
    name = f"step {step.step}" + ("" if step.valid else f" (not counted: {step.why_invalid})")
    return Slice(name, *_step_span(step), _plain(step, "timeline"))


def _findings(audit: Audit, rank: Rank) -> Iterator[Slice]:
    """Each finding on the steps it was found in, the costliest outermost; on all counted ones where it names none."""
    for finding in audit.findings:
        if finding.ranks and rank.rank not in finding.ranks:
            continue
        for step in rank.steps:
            if step.step in finding.steps or (not finding.steps and step.valid):
                yield Slice(_title(finding), *_step_span(step), _plain(finding))


def _title(finding: Finding) -> str:
    return (
        finding.cause
        if finding.cost_ms is None
        else f"{finding.cause}: {milliseconds(finding.cost_ms)} a step"
    )


def _exposed(rank: Rank) -> Iterator[Slice]:
    """Where communication ran and no compute did; spans nearer than a thousandth of the step are drawn as one."""
    for step in rank.steps:
        for start, end in step.timeline.exposed if step.timeline else ():
            yield Slice("exposed", _ns(start), _ns(end), {"step": step.step})


def _buckets(audit: Audit, rank: Rank) -> Iterator[Slice]:
    """Gradient collectives, numbered within their step as the audit's buckets are."""
    for step in rank.steps:
        gradients = [one for one in figures.of_step(audit, rank, step) if one.gradient]
        for number, one in enumerate(gradients):
            yield _collective(f"bucket {number}: {one.kind}", one)


def _collective(name: str, one: Collective) -> Slice:
    moved = f" {size(one.bytes)}" if one.bytes is not None else ""
    return Slice(name + moved, *_span(one), _plain(one))


def _waits(collectives: Sequence[Collective]) -> Iterator[Slice]:
    """Time before a start and in a collective in which nothing moved."""
    for one in collectives:
        start, _ = _span(one)
        named = {"kind": one.kind, "step": one.step}
        if one.ready_ms is not None and one.ready_ms < one.start_ms:
            args = {**named, "ready_ms": one.ready_ms, "start_ms": one.start_ms}
            yield Slice("ready, not started", _ns(one.ready_ms), start, args)
        if one.wait_ms:
            yield Slice(
                "waiting for a late rank", start, start + _ns(one.wait_ms), {**named, "wait_ms": one.wait_ms}
            )
