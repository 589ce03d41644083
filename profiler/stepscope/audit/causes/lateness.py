"""Which rank loses time in which phase of the step, so that the others wait for it; shared by straggler and input-skew."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from stepscope.audit.case import Case, RankStep
from stepscope.audit.causes import host_time
from stepscope.audit.causes.device import DeviceView, device_views
from stepscope.audit.causes.finding import MINIMUM_SHARE, Description, in_step, milliseconds, priced
from stepscope.audit.causes.host_time import Span, Stretch
from stepscope.audit.result import Finding
from stepscope.replay.change import Change, Segment
from stepscope.replay.graph import StepGraph
from stepscope.replay.joined import Key
from stepscope.stats import median
from stepscope.trace.recording import Phase

_FEWEST = 3
"""With fewer steps a rank whose operators or kernels take longer is there by chance; an idle stretch is not."""
_LEFT_OUT, _IDLE_LEFT_OUT = 10, 8
"""One in so many steps may be unlike the others: an idle stretch is seen or not, all other times only vary."""
_IDLE, _DEVICE, _HOST = "idle", "device", "host"
_KERNELS = {
    host_time.FORWARD: Phase.FORWARD,
    host_time.BACKWARD: Phase.BACKWARD,
    host_time.UPDATE: Phase.OPTIMIZER,
}


@dataclass(frozen=True, slots=True)
class Lost:
    """What one rank lost in one step's phase against the median of the others, and what is changed for a price; ns."""

    time: float
    change: Change | None
    how: str
    place: str | None = None
    """In which stretch it was lost, if that was an idle one."""


@dataclass(frozen=True, slots=True)
class Late:
    """A rank that is late in one phase, by step."""

    one: RankStep
    phase: str
    by_step: dict[int, Lost]

    @property
    def typical(self) -> float:
        """What it loses in the median step; ns."""
        return median([lost.time for lost in self.by_step.values()])


@dataclass(frozen=True, slots=True)
class _Step:
    """One step's phase on all ranks, by recording: own time, and the longest idle stretch of each of the phase's spans."""

    ones: dict[int, RankStep]
    own: dict[int, float]
    spans: dict[int, list[Span]]
    threads: dict[int, list[int]]
    idle: dict[int, list[Stretch | None]]
    kernels: dict[int, dict[Key, int]]
    """How long each of the phase's kernels ran; empty without a device."""

    @classmethod
    def of(cls, case: Case, graph: StepGraph, ones: Sequence[RankStep], phase: str) -> _Step:
        lines = {one.index: case.timelines[one.index] for one in ones}
        threads = {one.index: host_time.threads_of(one, lines[one.index]) for one in ones}
        spans = {
            one.index: [s for s in host_time.spans(one, lines[one.index]) if s.phase == phase] for one in ones
        }
        return cls(
            ones={one.index: one for one in ones},
            own={
                one.index: sum(
                    host_time.own_time(graph, one, thread, s.start, s.end)
                    for thread in threads[one.index]
                    for s in spans[one.index]
                )
                for one in ones
            },
            spans=spans,
            threads=threads,
            idle={
                one.index: [host_time.longest_idle(graph, one, s, lines[one.index]) for s in spans[one.index]]
                for one in ones
            },
            kernels={view.one.index: _kernels(view, phase) for view in device_views(case, graph)},
        )

    def idle_time(self, index: int) -> float:
        """Of a rank's longest idle stretches, one a span."""
        return float(sum(stretch.length for stretch in self.idle[index] if stretch is not None))

    def kernel_time(self, index: int) -> float:
        """Of a rank's kernels in all."""
        return float(sum(self.kernels.get(index, {}).values()))

    def own_time(self, index: int) -> float:
        """Of a rank's host, waiting for others left out."""
        return self.own[index]


def findings(case: Case, phases: Sequence[str], cause: str, fix: str, reference: str) -> list[Finding]:
    """A finding for each phase in which one rank is late in every step but a few."""
    if not _anybody_waits(case):
        return []
    found = []
    for phase in phases:
        late = _late_in(case, phase)
        if late is not None:
            price = case.price(lambda graph, late=late: _as_fast_as_others(graph, late))  # type: ignore[misc]
            found += priced(case, price, _describe(late, cause, fix, reference))
    return found


def _anybody_waits(case: Case) -> bool:
    """Whether waiting for other ranks is seen at all, and in all ranks together enough to matter."""
    waits = [(one.step.parts.peer_wait or 0, one.step.wall) for one in case.rank_steps()]
    return any(wait >= MINIMUM_SHARE * wall for wait, wall in waits)


def _as_fast_as_others(graph: StepGraph, late: Late) -> Change | None:
    lost = late.by_step.get(graph.step)
    return lost.change if lost is not None else None


def _kernels(view: DeviceView, phase: str) -> dict[Key, int]:
    if phase not in _KERNELS:
        return {}
    mine = np.flatnonzero(view.compute & (view.phase == _KERNELS[phase]))
    durations = view.activities.end - view.activities.start
    return {view.key(place): int(durations[place]) for place in mine.tolist()}


def _late_in(case: Case, phase: str) -> Late | None:
    """The rank that idles longer in a phase than the others ever do, else the one whose kernels or host take longer."""
    steps = _steps(case, phase)
    if not steps or case.step_ms is None:
        return None
    for time_of, lost_in in (
        (_Step.idle_time, _idling),
        (_Step.kernel_time, _longer_kernels),
        (_Step.own_time, _all_over),
    ):
        times = {
            number: {index: time_of(step, index) for index in step.ones} for number, step in steps.items()
        }
        one_in = _IDLE_LEFT_OUT if lost_in is _idling else _LEFT_OUT
        culprit = _apart(times, MINIMUM_SHARE * case.step_ms * 1e6, one_in)
        if culprit is not None and (len(steps) >= _FEWEST or lost_in is _idling):
            if lost_in is _all_over and _same_work(case, steps):
                return None
            lost = {number: lost_in(step, culprit) for number, step in steps.items() if culprit in step.ones}
            example = next(step.ones[culprit] for step in steps.values() if culprit in step.ones)
            return Late(example, phase, lost)
    return None


def _steps(case: Case, phase: str) -> dict[int, _Step]:
    """By step, a phase as several ranks have it."""
    return case.shared(
        ("phase", phase),
        lambda: {
            number: _Step.of(case, graph, ones, phase)
            for number, graph in case.graphs.items()
            if len(ones := in_step(case, graph)) > 1
        },
    )


def _same_work(case: Case, steps: Mapping[int, _Step]) -> bool:
    """Whether ranks on the processors of one machine run the same operators on the same shapes in a phase.

    Who is slower then got less of the processors while it was recorded, which is no rank's fault.
    """
    hosts = {recording.header.host for recording in case.recordings}
    if None in hosts or len(hosts) > 1 or any(recording.device != "cpu" for recording in case.recordings):
        return False
    works = [
        [_operators(case, index, spans) for index, spans in step.spans.items()] for step in steps.values()
    ]
    return all(one is not None and one == of_step[0] for of_step in works for one in of_step)


def _operators(case: Case, index: int, spans: Sequence[Span]) -> Counter[tuple[str, str]] | None:
    """How often a rank ran each operator on each shapes; None where shapes were not recorded."""
    timeline = case.timelines[index]
    trace, events = timeline.trace, timeline.events
    rows = case.shared(("operators", index), lambda: timeline.computing_rows(on_device=False, without=()))
    start = events.start[rows]
    inside = np.zeros(len(rows), dtype=np.bool_)
    for span in spans:
        inside |= (start >= span.start) & (start < span.end)
    dims = [str(shape.dims) if (shape := trace.shapes.get(row)) else "" for row in rows[inside].tolist()]
    names = [trace.names[name] for name in events.name[rows[inside]].tolist()]
    return Counter(zip(names, dims, strict=True)) if trace.shapes else None


def _apart(times: Mapping[int, Mapping[int, float]], least: float, one_in: int) -> int | None:
    """The rank that takes longer in its best step than any other in its worst, by step and recording; ns.

    one_in: of so many steps or more, one in so many is left out at each end. Who is slower only in most steps is jitter: with two
    ranks and five steps that happens to a third of all phases.
    """
    by_rank: dict[int, list[float]] = defaultdict(list)
    for step in times.values():
        for index, time in step.items():
            by_rank[index].append(time)
    culprit = max(by_rank, key=lambda index: median(by_rank[index]))
    rest = [time for index, found in by_rank.items() if index != culprit for time in found]
    if not rest:
        return None
    mine, others = sorted(by_rank[culprit]), sorted(rest)
    apart = mine[len(mine) // one_in] > others[-1 - len(others) // one_in]
    return culprit if apart and median(mine) - median(others) >= least else None


def _idling(step: _Step, culprit: int) -> Lost:
    """The culprit's idle stretches as long as the others'."""
    one, main = step.ones[culprit], step.threads[culprit][:1]
    segments, lost, place = [], 0.0, None
    for number, stretch in enumerate(step.idle[culprit]):
        others = [s[number] for index, s in step.idle.items() if index != culprit and number < len(s)]
        usual = median([s.length if s else 0 for s in others]) if others else 0.0
        if stretch is not None and stretch.length > usual:
            keep = usual / stretch.length
            segments.append(Segment(culprit, stretch.thread, stretch.start, stretch.end, keep))
            lost += stretch.length - usual
            which = "main" if stretch.thread in main else "autograd"
            place = place or (
                f"its {which} thread spends {milliseconds(stretch.length)} without an operator, "
                f"{host_time.around(one, stretch, step.spans[culprit][number].phase)}"
            )
    return Lost(lost, Change(segments=tuple(segments)) if segments else None, _IDLE, place)


def _longer_kernels(step: _Step, culprit: int) -> Lost:
    """The culprit's kernels as long in all as the others'."""
    mine, usual = step.kernel_time(culprit), _usual(step, culprit, _Step.kernel_time)
    if mine <= usual:
        return Lost(mine - usual, None, _DEVICE)
    return Lost(mine - usual, Change(activities=dict.fromkeys(step.kernels[culprit], usual / mine)), _DEVICE)


def _all_over(step: _Step, culprit: int) -> Lost:
    """The culprit's whole phase as long as the others'."""
    mine, usual = step.own_time(culprit), _usual(step, culprit, _Step.own_time)
    if mine <= usual:
        return Lost(mine - usual, None, _HOST)
    segments = (
        Segment(culprit, thread, s.start, s.end, usual / mine)
        for thread in step.threads[culprit]
        for s in step.spans[culprit]
    )
    return Lost(mine - usual, Change(segments=tuple(segments)), _HOST)


def _usual(step: _Step, culprit: int, time_of: Callable[[_Step, int], float]) -> float:
    return median([time_of(step, index) for index in step.ones if index != culprit])


def _describe(late: Late, cause: str, fix: str, reference: str) -> Description:
    evidence = [
        f"rank {late.one.rank} takes {milliseconds(late.typical)} longer in {late.phase} than the other ranks' median, in "
        f"{len(late.by_step)} of {len(late.by_step)} steps"
    ]
    places = [lost.place for lost in late.by_step.values() if lost.place is not None]
    how = next(iter(late.by_step.values())).how
    if how == _IDLE:
        evidence.append(f"instead, {places[0]}")
        confidence = "high: the time was lost in one stretch that the other ranks do not have"
    elif how == _DEVICE:
        evidence.append(
            "its kernels run longer on the device throughout the phase: more work, a lower clock, a shared GPU"
        )
        confidence = "high: the kernels' own times were recorded, and waiting is in none of them"
    else:
        evidence.append("its operators take longer throughout the phase: more work, or a slower processor")
        confidence = "medium: the phase as a whole is longer, and no single place in it"
    if len(late.by_step) < _FEWEST:
        confidence = f"low: of {len(late.by_step)} step{'s' * (len(late.by_step) > 1)} only; record more"
    rank = late.one.rank
    return Description(cause, confidence, evidence, fix, reference, ranks=[] if rank is None else [rank])
