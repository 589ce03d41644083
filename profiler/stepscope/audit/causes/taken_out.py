"""What a step would take had some of its collectives not been: for causes that are collectives which need not be."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from stepscope.audit.case import Case, Price, RankStep
from stepscope.audit.causes.finding import in_step, keys_of, mebibytes, milliseconds
from stepscope.replay.change import Change
from stepscope.replay.graph import StepGraph
from stepscope.trace.recording import CollectiveOp

Pick = Callable[[RankStep], Sequence[CollectiveOp]]


def price_without(case: Case, pick: Pick) -> Price | None:
    """The price of the collectives that are picked: with no transfer, and with nobody waiting for them."""

    def without(graph: StepGraph) -> Change | None:
        keys = [key for one in in_step(case, graph) for key in keys_of(one, pick(one))]
        return Change(transfers=dict.fromkeys(keys, 0.0), unwaited=frozenset(keys)) if keys else None

    return case.price(without)


def first_with(case: Case, pick: Pick) -> tuple[RankStep, Sequence[CollectiveOp]] | None:
    """A rank's step that has such collectives, with them."""
    return next(((one, ops) for one in case.rank_steps() if (ops := pick(one))), None)


def in_words(ops: Sequence[CollectiveOp]) -> str:
    """How many of which kind and size, and how long they lasted."""
    kinds = ", ".join(sorted({f"{op.kind} ({op.role})" for op in ops}))
    sizes = [op.bytes for op in ops if op.bytes is not None]
    size = f", {mebibytes(sum(sizes))} in all" if sizes else ""
    return f"{len(ops)} a step: {kinds}{size}; they last {milliseconds(sum(op.end - op.start for op in ops))}, waiting included"
