"""What a step would take had some of its collectives not been: for causes that are collectives which need not be.

On a CPU the call itself goes as well: the way into the operator that launches one, and until its thread goes on once it is over.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from stepscope.audit.case import Case, Price, RankStep
from stepscope.audit.causes.finding import in_step, keys_of, mebibytes, milliseconds
from stepscope.replay.change import Change, Segment
from stepscope.replay.graph import StepGraph
from stepscope.replay.on_cpu import launching_thread
from stepscope.trace.recording import NO_TIME, CollectiveOp

_SOON = 200_000
"""A thread that waited for a collective goes on within so many ns; if it takes longer in every step, that is the script's own."""
_WAY_IN = 50_000
"""Python's way into a collective takes no longer; what came before is the script's own. ns."""
Pick = Callable[[RankStep], Sequence[CollectiveOp]]


def price_without(case: Case, pick: Pick) -> Price | None:
    """The price of the collectives that are picked: with no transfer, and with nobody waiting for them."""
    calls = calls_of(case, pick)

    def without(graph: StepGraph) -> Change | None:
        keys = [key for one in in_step(case, graph) for key in keys_of(one, pick(one))]
        segments = tuple(calls.get(graph.step, ()))
        return (
            Change(transfers=dict.fromkeys(keys, 0.0), unwaited=frozenset(keys), segments=segments)
            if keys
            else None
        )

    return case.price(without)


@dataclass(frozen=True, slots=True)
class _Call:
    """A collective as the thread that calls for it has it: gone into, launched, and when the thread went on; ns.

    over: when the collective was, if the thread waited for it.
    """

    thread: int
    begun: int
    goes_on: int
    over: int | None

    @property
    def late(self) -> int:
        """How long after the collective the thread went on."""
        return 0 if self.over is None else self.goes_on - self.over


def calls_of(case: Case, pick: Pick) -> dict[int, list[Segment]]:
    """By step, the stretches of the calling threads that go with collectives; none on a device, whose host runs ahead.

    A thread that waited wakes up, late at times, and then does what the script does. What passes there in every step is the
    script's own if it is long.
    """
    by_rank: dict[int, dict[int, list[_Call]]] = defaultdict(dict)
    for one in case.rank_steps():
        found = [_call(case, one, op) for op in pick(one)]
        by_rank[one.index][one.number] = [call for call in found if call is not None]
    segments: dict[int, list[Segment]] = defaultdict(list)
    for index, steps in by_rank.items():
        for number, calls in steps.items():
            for place, call in enumerate(calls):
                least = min(of[place].late for of in steps.values() if place < len(of))
                end = call.goes_on - (least if least > _SOON else 0)
                segments[number].append(Segment(index, call.thread, call.begun, end))
    return segments


def _call(case: Case, one: RankStep, op: CollectiveOp) -> _Call | None:
    if op.stream is not None or op.launch == NO_TIME:
        return None
    events = one.recording.trace.events
    thread = launching_thread(case.timelines[one.index], op)
    mine = events.on_host[events.thread[events.on_host] == thread]
    start, end = events.start[mine], events.end[mine]
    launched = start == op.launch
    if thread is None or not launched.any():
        return None
    returned = int(end[launched].max())
    earliest = op.launch - _WAY_IN
    begun = max(
        int(start[start < op.launch].max(initial=earliest)), int(end[end <= op.launch].max(initial=earliest))
    )
    goes_on = int(start[start >= returned].min(initial=op.end + _SOON))
    waited = goes_on >= op.end
    return _Call(thread, max(begun, earliest), goes_on if waited else returned, op.end if waited else None)


def first_with(case: Case, pick: Pick) -> tuple[RankStep, Sequence[CollectiveOp]] | None:
    """A rank's step that has such collectives, with them."""
    return next(((one, ops) for one in case.rank_steps() if (ops := pick(one))), None)


def in_words(ops: Sequence[CollectiveOp]) -> str:
    """How many of which kind and size, and how long they lasted."""
    kinds = ", ".join(sorted({f"{op.kind} ({op.role})" for op in ops}))
    sizes = [op.bytes for op in ops if op.bytes is not None]
    size = f", {mebibytes(sum(sizes))} in all" if sizes else ""
    return f"{len(ops)} a step: {kinds}{size}; they last {milliseconds(sum(op.end - op.start for op in ops))}, waiting included"
