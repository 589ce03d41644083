"""late-parameter: buckets are complete and wait, because DDP sends them in a fixed order and an earlier one is not.

One gradient that arrives late in an early bucket holds all of them: a shared weight, a parameter that is used again at
the start of the network, a graph that changed after DDP learnt the order. Priced by the replay with buckets of the same
size filled in the order in which the gradients did arrive. A busy link is no sign of it: a launch is early then.
"""

from __future__ import annotations

from stepscope.audit import rebucket
from stepscope.audit.case import Case, RankStep
from stepscope.audit.causes import names
from stepscope.audit.causes.blocked import buckets_held_up, median_size
from stepscope.audit.causes.finding import Description, milliseconds, priced
from stepscope.audit.causes.rounds import Round, reducing_rounds
from stepscope.audit.causes.unused import searches_unused
from stepscope.audit.result import Finding


def detect(case: Case) -> list[Finding]:
    """One finding, if buckets were held up and it cost anything."""
    chosen = rebucket.choose(case, _held_up)
    link = rebucket.link_of(case) if chosen else None
    if link is None:
        return []
    example = next(iter(chosen.values()))[0]
    caps = [median_size(example)]
    arrived = rebucket.in_order_of_arrival(case)
    price = case.price(lambda graph: rebucket.remade(arrived, graph, chosen.get(graph.step, []), link, caps))
    return priced(case, price, _describe(case, example))


def _held_up(one: RankStep) -> Round | None:
    reduced = reducing_rounds(one)
    if not reduced or searches_unused(one) or not reduced[-1].reduced_within:
        return None
    return reduced[-1] if buckets_held_up(reduced[-1]) else None


def _describe(case: Case, example: Round) -> Description:
    held = buckets_held_up(example)
    blocking = example.ops.index(held[0])
    name = names.last_of_bucket(case.run, blocking)
    named = [f"bucket {blocking} waits for {name}, the last of its gradients to arrive"] if name else []
    first, last = held[0], held[-1]
    return Description(
        cause="late-parameter",
        confidence="high: the gradients of the buckets that waited had been recorded as complete",
        evidence=[
            f"{len(held)} of {len(example.ops)} buckets were complete and not sent",
            f"they were sent together, within {milliseconds(last.launch - first.launch)}, "
            f"{milliseconds(first.launch - example.start)} into a backward of {milliseconds(example.end - example.start)}",
            *named,
        ],
        fix=(
            "make the parameter that arrives late the last one again: use or register it at the network's start only, "
            "untie it, or run the graph that lasts from the first step on, when DDP learns the order"
        ),
        reference="https://github.com/pytorch/pytorch/pull/162667",
    )
