"""The host waits for the device inside forward or backward, or between them, and can't launch ahead."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from stepscope.audit.case import Case
from stepscope.audit.causes import reads
from stepscope.audit.causes.device import reads_gradients
from stepscope.audit.causes.finding import Description, milliseconds, priced
from stepscope.audit.causes.reads import Read
from stepscope.audit.result import Finding
from stepscope.replay.change import Change
from stepscope.replay.graph import StepGraph
from stepscope.stats import median
from stepscope.trace import host

_WHERE = (reads.FORWARD, reads.BETWEEN, reads.BACKWARD)


def detect(case: Case) -> list[Finding]:
    """Values read back from the device, and synchronises, by the script itself."""
    found = {number: _own_reads(case, graph) for number, graph in case.graphs.items()}
    everything = [read for many in found.values() for read in many]
    if not everything:
        return []

    def changed(graph: StepGraph) -> Change | None:
        return reads.without(found[graph.step], reads_gradients(case, graph))

    description = Description(
        cause="host-sync",
        confidence=_confidence(everything),
        evidence=evidence_of(everything, len(case.graphs)),
        fix="keep the value on the device (accumulate it in a tensor) and read it every N steps, after optimizer.step(); or "
        "copy it with .to('cpu', non_blocking=True) into pinned memory and read it one step later",
        reference="https://pytorch.org/tutorials/recipes/recipes/tuning_guide.html (avoid unnecessary CPU-GPU "
        "synchronization); meta-pytorch/torchtune pull 522 (40-50 ms a step)",
        ranks=sorted({read.view.rank for read in everything}),
    )
    return priced(case, case.price(changed), description)


def _own_reads(case: Case, graph: StepGraph) -> list[Read]:
    """The script's: not DDP's own, which are inside AccumulateGrad, and no upload of a batch."""
    return [
        read
        for read in reads.all_reads(case, graph)
        if read.place in _WHERE
        and not any(map(host.is_accumulate_grad, read.around))
        and not any(map(host.is_communication, read.around))
        and not read.copies_from("HtoD (Pageable")
    ]


def _confidence(found: Sequence[Read]) -> str:
    if all(read.copies for read in found):
        return "high: the copies to the host and the calls that waited for them were recorded"
    return "medium: the trace does not say which stream a synchronise without a copy waited for"


def evidence_of(found: Sequence[Read], steps: int) -> list[str]:
    """One sentence for every operator, place and calling function: how often, for how long, where it is first seen.

    The function is known where stacks were recorded; the profiler writes the line on which it begins.
    """
    groups: dict[tuple[str, str, str], list[Read]] = defaultdict(list)
    for read in found:
        groups[read.operator, read.place, read.caller or ""].append(read)
    ranked = sorted(groups.values(), key=lambda many: -sum(read.blocked for read in many))
    return [_sentence(many, steps) for many in ranked]


def _sentence(many: Sequence[Read], steps: int) -> str:
    first = min(many, key=lambda read: (read.view.one.number, read.view.rank, read.start))
    ranks = {read.view.rank for read in many}
    each = len(many) / steps / len(ranks)
    what = first.operator if first.operator.startswith("aten::") else "the script's own synchronise"
    called = f", called in {first.caller}" if first.caller else ""
    return (
        f"{what} in {first.place}{called}: {each:.3g} a step on rank{'s' * (len(ranks) > 1)} "
        f"{', '.join(map(str, sorted(ranks)))}, the host blocked for {milliseconds(median([r.blocked for r in many]))} "
        f"each; first in step {first.view.one.number} on rank {first.view.rank} at {milliseconds(first.start)}"
    )
