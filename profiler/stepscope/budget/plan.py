"""The whole budget of one setting."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from stepscope import __version__
from stepscope.budget import choice
from stepscope.budget.beside import compare
from stepscope.budget.buckets import bucket_row, recommend
from stepscope.budget.calibrated import Model
from stepscope.budget.fixes import efficiency, fixes
from stepscope.budget.inputs import describe, describe_recorded
from stepscope.budget.memory import all_stages
from stepscope.budget.recorded import Recorded
from stepscope.budget.result import (
    BeyondRing,
    Budget,
    Communication,
    Comparison,
    OtherCollective,
    Ring,
    SizeChoice,
    Unmodelled,
)
from stepscope.budget.ring import crossover, ring_all_reduce
from stepscope.budget.scaling import global_batch, scale_points
from stepscope.budget.setting import Setting
from stepscope.budget.traffic import traffic
from stepscope.budget.verdict import heuristic, no_communication, verdict

LIMITS = (
    "This is a model, not a measurement: `stepscope calibrate` measures latency and bandwidth, `stepscope run` measures whether "
    "communication really hides behind backward.",
    "The verdict, the buckets and the scaling use a flat ring. Below S* libraries take trees and one-shot algorithms, and the "
    "ring overstates the cost; on several nodes they know the topology, and it overstates it again.",
    "Ranks arrive together, adding costs no time, the link is not shared, and a message of any size runs at its full rate; "
    "waiting for a straggler and compute slowed down by communication are not in it.",
)


NO_LINK = (
    "No latency and no bandwidth is known here, so nothing is predicted: measure them with `stepscope calibrate` and pass "
    "--fabric fabric.json, or give --bw and --latency."
)
NO_LATENCY = (
    "The calibration found no latency above 0, as if transfer took all the time: no budget can be made of that. Calibrate from "
    "smaller sizes on a quiet machine, or give --latency."
)


def measured_alone(
    recorded: Recorded, model: Model | None, remarks: Iterable[str] = (), warning: str | None = None
) -> Unmodelled:
    """What a recorded run says without a link to budget with; a model may do for the comparison nevertheless."""
    return Unmodelled(
        stepscope=__version__,
        ranks=recorded.ranks,
        message=recorded.message,
        inputs=describe_recorded(recorded),
        limits=(NO_LINK if model is None else NO_LATENCY,),
        remarks=tuple(remarks),
        comparison=compare(recorded, model),
        warning=warning,
    )


def make_budget(
    setting: Setting,
    *,
    remarks: Iterable[str] = (),
    comparison: Comparison | None = None,
    warning: str | None = None,
) -> Budget:
    """Everything that follows from the setting. One rank is a case of its own: no communication."""
    communication = _communication(setting) if setting.ranks > 1 else None
    return Budget(
        stepscope=__version__,
        warning=warning,
        verdict=verdict(setting, communication.ring) if communication else no_communication(),
        heuristic=heuristic(communication.ring.share) if communication else None,
        ranks=setting.ranks,
        zero=setting.zero,
        accumulate=setting.accumulate,
        message=setting.message,
        step=setting.step,
        global_batch=global_batch(setting, setting.ranks),
        critical_batch=setting.critical_batch,
        communication=communication,
        memory=all_stages(setting.parameters, setting.ranks),
        scaling=scale_points(setting),
        inputs=describe(setting),
        limits=LIMITS,
        remarks=(*remarks, *_outside_of_the_fit(setting)),
        comparison=comparison,
    )


def _outside_of_the_fit(setting: Setting) -> Iterator[str]:
    if setting.valid is None:
        return
    low, high = setting.valid
    outside = [size for size in setting.buckets if not low <= min(size, setting.message) <= high]
    if outside:
        names = ", ".join(f"{size.mib:.3g}" for size in outside)
        yield f"Buckets of {names} MiB are outside of the sizes for which the calibration's fit was seen to hold."


def _communication(setting: Setting) -> Communication:
    return Communication(
        ring=ring_budget(setting),
        buckets=tuple(bucket_row(setting, bucket) for bucket in setting.buckets),
        recommended=recommend(setting, setting.ranks),
        beyond_ring=_beyond_ring(setting),
        others=tuple(
            OtherCollective(
                collective=name, candidates=choice.candidates(family, setting.fabric, setting.message)
            )
            for name, family in choice.OTHERS.items()
        ),
        fixes=fixes(setting),
    )


def ring_budget(setting: Setting) -> Ring:
    """The step's communication by the ring, against the step and against backward. Needs two ranks or more."""
    sent = traffic(setting, setting.ranks, setting.accumulate)
    cost, backward = sent.total, sent.backward.total
    slack = setting.window - backward
    least = sent.least_exposed(setting.compute - setting.window, setting.window)
    return Ring(
        cost=cost,
        total=cost.total,
        share=cost.total / setting.step,
        bandwidth_over_latency=cost.bandwidth / cost.latency,
        exposed_efficiency=efficiency(setting.step, cost.total),
        ceiling=efficiency(setting.step, least),
        in_backward=backward,
        outside_backward=sent.forward.total * sent.reductions + sent.after.total,
        window=setting.window,
        slack=slack,
        margin=slack / setting.window,
        fits=backward <= setting.window,
        least_exposed=least,
        crossover=crossover(setting.ranks, setting.link),
        buckets=len(setting.sequence) or None,
    )


def _beyond_ring(setting: Setting) -> BeyondRing:
    fabric, family = setting.fabric, choice.ALL_REDUCE
    library = choice.library(family)
    sizes = (*(min(bucket, setting.message) for bucket in setting.buckets), setting.message)
    return BeyondRing(
        whole_message=choice.candidates(family, fabric, setting.message),
        sizes=tuple(
            SizeChoice(
                ring=ring_all_reduce(setting.ranks, size, setting.link),
                library=choice.choose(library, fabric, size),
                cheapest=choice.choose(family, fabric, size),
            )
            for size in dict.fromkeys(sizes)
        ),
        library_ranges=choice.ranges(library, fabric),
        all_ranges=choice.ranges(family, fabric),
    )
