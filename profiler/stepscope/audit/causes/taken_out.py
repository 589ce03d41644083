"""What a step would take had some of its collectives not been: for causes that are collectives which need not be.

On a CPU the call itself goes as well: the operator that launches one, and until its thread goes on once it is over.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from stepscope.audit.case import Case, Price, RankStep
from stepscope.audit.causes.finding import in_step, keys_of, mebibytes, milliseconds
from stepscope.replay.change import Change, Segment
from stepscope.replay.graph import StepGraph
from stepscope.replay.on_cpu import launching_thread
from stepscope.trace.recording import NO_TIME, CollectiveOp

_SOON = 200_000
"""A thread that waited for a collective goes on within so many ns; what comes later is the script's own."""
Pick = Callable[[RankStep], Sequence[CollectiveOp]]


def price_without(case: Case, pick: Pick) -> Price | None:
    """The price of the collectives that are picked: with no transfer, and with nobody waiting for them."""

    def without(graph: StepGraph) -> Change | None:
        picked = [(one, op) for one in in_step(case, graph) for op in pick(one)]
        keys = [key for one, op in picked for key in keys_of(one, [op])]
        calls = tuple(call for one, op in picked if (call := _call(case, one, op)) is not None)
        return (
            Change(transfers=dict.fromkeys(keys, 0.0), unwaited=frozenset(keys), segments=calls)
            if keys
            else None
        )

    return case.price(without)


def _call(case: Case, one: RankStep, op: CollectiveOp) -> Segment | None:
    """The stretch of the calling thread that goes with a collective; None on a device, whose host runs ahead."""
    if op.stream is not None or op.launch == NO_TIME:
        return None
    events = one.recording.trace.events
    thread = launching_thread(case.timelines[one.index], op)
    mine = events.on_host[events.thread[events.on_host] == thread]
    launched = mine[events.start[mine] == op.launch]
    if thread is None or not len(launched):
        return None
    returned = int(events.end[launched].max())
    later = events.start[mine]
    goes_on = int(later[later >= returned].min(initial=op.end + _SOON))
    if goes_on >= op.end:
        returned = goes_on if goes_on < op.end + _SOON else op.end
    return Segment(one.index, thread, op.launch, returned)


def first_with(case: Case, pick: Pick) -> tuple[RankStep, Sequence[CollectiveOp]] | None:
    """A rank's step that has such collectives, with them."""
    return next(((one, ops) for one in case.rank_steps() if (ops := pick(one))), None)


def in_words(ops: Sequence[CollectiveOp]) -> str:
    """How many of which kind and size, and how long they lasted."""
    kinds = ", ".join(sorted({f"{op.kind} ({op.role})" for op in ops}))
    sizes = [op.bytes for op in ops if op.bytes is not None]
    size = f", {mebibytes(sum(sizes))} in all" if sizes else ""
    return f"{len(ops)} a step: {kinds}{size}; they last {milliseconds(sum(op.end - op.start for op in ops))}, waiting included"
