"""The host reads the gradients' norm, or the gradient scaler its flag, between backward and the optimizer."""

from __future__ import annotations

from stepscope.audit.case import Case
from stepscope.audit.causes import reads
from stepscope.audit.causes.device import DeviceView, reads_gradients
from stepscope.audit.causes.finding import Description, priced
from stepscope.audit.causes.host_sync import evidence_of
from stepscope.audit.result import Finding
from stepscope.replay.change import Change
from stepscope.replay.graph import StepGraph
from stepscope.trace import host

_SCALER = "aten::_amp_foreach_non_finite_check_and_unscale_"
_NORM = ("aten::_foreach_norm", "aten::linalg_vector_norm", "aten::norm")
_SCALER_FIX = "an optimizer that takes the scaler's flag on the device, such as torch.optim.AdamW(..., fused=True); or bfloat16"
_NORM_FIX = (
    "clip_grad_norm_(..., error_if_nonfinite=False), and log the norm it returns every N steps instead of calling "
    ".item() on it in each"
)


def detect(case: Case) -> list[Finding]:
    """Reads between the end of backward and the optimizer's step."""
    found = {
        number: [
            read
            for read in reads.all_reads(case, graph)
            if read.place == reads.CLIP and not read.copies_from("HtoD")
        ]
        for number, graph in case.graphs.items()
    }
    everything = [read for many in found.values() for read in many]
    if not everything:
        return []
    scaler, norm = (any(_launched(read.view, names) for read in everything) for names in ((_SCALER,), _NORM))

    def changed(graph: StepGraph) -> Change | None:
        return reads.without(found[graph.step], reads_gradients(case, graph))

    description = Description(
        cause="grad-clip-sync",
        confidence=_confidence(scaler=scaler, norm=norm),
        evidence=evidence_of(everything, len(case.graphs)),
        fix=" and ".join(
            fix for fix, holds in ((_SCALER_FIX, scaler), (_NORM_FIX, norm or not scaler)) if holds
        ),
        reference="pytorch/pytorch pull 61042 and issue 60691 (clip_grad_norm_); torch/amp/grad_scaler.py (found_inf is "
        "read unless the optimizer is fused)",
        ranks=sorted({read.view.rank for read in everything}),
    )
    return priced(case, case.price(changed), description)


def _confidence(*, scaler: bool, norm: bool) -> str:
    if scaler or norm:
        what = "the scaler's check" if scaler else "the gradients' norm"
        return f"high: {what} was launched in the same place, and the copy to the host was recorded"
    return "medium: a read between backward and the optimizer, with neither a norm nor a scaler's check beside it"


def _launched(view: DeviceView, names: tuple[str, ...]) -> bool:
    """Whether an operator of these names ran in the step, outside the optimizer and backward."""
    trace, window = view.trace, view.one.step.window
    rows = host.select(trace, lambda name: name in names)
    start = trace.events.start[rows]
    return bool(((start >= window.start) & (start < window.end)).any())
