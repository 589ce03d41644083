"""find-unused-parameters: DDP searches the graph in every step, and never learns in which order gradients arrive.

With find_unused_parameters buckets keep the reverse order of registration for good; where backward runs in another one,
they wait for each other. Priced by the replay without the search, without the all-reduce of the map of used parameters,
and, where buckets were held up, with buckets of the same size filled as the gradients arrived. The `.item()` calls that
DDP makes itself, one a parameter, are no fault of the script.
"""

from __future__ import annotations

from stepscope.audit import rebucket
from stepscope.audit.case import Case, RankStep
from stepscope.audit.causes.blocked import buckets_held_up, median_size
from stepscope.audit.causes.finding import Description, in_step, keys_of, milliseconds, priced
from stepscope.audit.causes.rounds import Round, host_rows, reducing_rounds
from stepscope.audit.causes.unused import SEARCH, searches_unused, unused_maps
from stepscope.audit.result import Finding
from stepscope.replay.change import Change, Segment
from stepscope.replay.graph import StepGraph


def detect(case: Case) -> list[Finding]:
    """One finding, if the search or the order that it keeps cost anything."""
    searching = [one for one in case.rank_steps() if searches_unused(one)]
    if not searching:
        return []
    link = rebucket.link_of(case)
    price = case.price(lambda graph: _without(case, graph, link))
    return priced(case, price, _describe(searching[0]))


def _without(case: Case, graph: StepGraph, link: rebucket.Link | None) -> Change | None:
    changes = []
    for one in in_step(case, graph):
        if searches_unused(one):
            maps = keys_of(one, unused_maps(one))
            changes.append(
                Change(
                    transfers=dict.fromkeys(maps, 0.0),
                    unwaited=frozenset(maps),
                    segments=tuple(_searches(one)),
                )
            )
    held = [round_ for one in in_step(case, graph) if searches_unused(one) and (round_ := _held_up(one))]
    if held and link is not None:
        caps = [median_size(held[0])]
        changes.append(
            rebucket.remade(rebucket.in_order_of_arrival(case), graph, held, link, caps) or Change()
        )
    return rebucket.together(changes)


def _searches(one: RankStep) -> list[Segment]:
    trace = one.recording.trace
    threads = trace.events.thread
    return [
        Segment(one.index, int(threads[row]), int(trace.events.start[row]), int(trace.events.end[row]))
        for row in host_rows(one, SEARCH)
    ]


def _held_up(one: RankStep) -> Round | None:
    reduced = reducing_rounds(one)
    return reduced[-1] if reduced and buckets_held_up(reduced[-1]) else None


def _describe(one: RankStep) -> Description:
    searched = sum(segment.end - segment.start for segment in _searches(one))
    maps = unused_maps(one)
    evidence = [f"DDP searches the graph for unused parameters, {milliseconds(searched)} a step"]
    if maps:
        evidence.append(
            f"{len(maps)} all-reduce of the map of used parameters ({maps[0].elements} integers) ends the step"
        )
    held = _held_up(one)
    if held is not None:
        blocked = buckets_held_up(held)
        evidence.append(
            f"{len(blocked)} of {len(held.ops)} buckets were complete and not sent: buckets are filled as parameters are "
            f"registered, and backward runs in another order; the first was sent "
            f"{milliseconds(held.first_sent - held.start)} into a backward of {milliseconds(held.end - held.start)}"
        )
    return Description(
        cause="find-unused-parameters",
        confidence="high: the search and its all-reduce are in the trace",
        evidence=evidence,
        fix=(
            "find_unused_parameters=False, if every parameter gets a gradient in every step; else static_graph=True, if the "
            "unused ones stay the same; else register modules in the order in which forward uses them"
        ),
        reference="https://docs.pytorch.org/tutorials/recipes/recipes/tuning_guide.html",
    )
