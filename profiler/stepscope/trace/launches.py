"""From a device activity back to the host: its launch, and the operators that the launch sits in."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stepscope.trace import collectives, host
from stepscope.trace.columns import NO_ID, Trace
from stepscope.trace.recording import NO_TIME, Phase


@dataclass(frozen=True, slots=True)
class Launches:
    """For each of some activities, where and when the host launched it; columns of equal length."""

    thread: NDArray[np.int64]
    time: NDArray[np.int64]
    """NO_TIME where no launch was recorded."""

    @property
    def known(self) -> NDArray[np.bool_]:
        """Whether a launch was recorded at all."""
        return np.not_equal(self.time, NO_TIME)


def device_launches(trace: Trace, rows: NDArray[np.int64]) -> Launches:
    """The runtime calls that launched device activities, by correlation id."""
    events = trace.events
    call = calls_of(trace, events.correlation[rows])
    found = call != host.NO_ROW
    return Launches(np.where(found, events.thread[call], 0), np.where(found, events.start[call], NO_TIME))


def calls_of(trace: Trace, wanted: NDArray[np.int64]) -> NDArray[np.int64]:
    """For each of some correlation ids, the row of the runtime call that has it, or NO_ROW."""
    events, calls = trace.events, trace.events.linked_calls
    if not len(calls):
        return np.full(len(wanted), host.NO_ROW, dtype=np.int64)
    index = np.minimum(np.searchsorted(events.correlation[calls], wanted), len(calls) - 1)
    found = (events.correlation[calls[index]] == wanted) & (wanted != NO_ID)
    return np.where(found, calls[index], host.NO_ROW)


class HostContext:
    """Answers what a launch was part of: its phase, its communication operator, DDP's and FSDP's hooks."""

    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        self.evaluate = host.HostSpans(trace, host.select(trace, host.is_evaluate_function))
        self.backward = host.HostSpans(trace, host.select(trace, host.is_backward))
        self.optimizer = host.HostSpans(trace, host.select(trace, host.is_optimizer_step))
        self.accumulate = host.HostSpans(trace, host.select(trace, host.is_accumulate_grad))
        self.ddp_forward = host.HostSpans(trace, host.select(trace, host.is_ddp_forward))
        self.fsdp_reduce = host.HostSpans(trace, host.select(trace, host.is_fsdp_reduce))
        self.fsdp_gather = host.HostSpans(trace, host.select(trace, host.is_fsdp_gather))
        self.communication = host.HostSpans(trace, host.select(trace, host.is_communication))
        self.named = host.HostSpans(trace, host.select(trace, _names_its_kind))
        self.annotated = host.HostSpans(trace, host.select(trace, _is_backends_annotation))
        self.param_comms = host.HostSpans(
            trace, host.select(trace, lambda name: name == collectives.PARAM_COMMS)
        )

    def phases(self, launches: Launches) -> NDArray[np.uint8]:
        """The phase of each launch.

        Inside both an optimizer step and a node of backward, the inner one counts: a closure's backward is backward (and
        its forward is forward), and an optimizer that steps in a gradient's hook is optimizer.
        """
        start = self._trace.events.start
        backward = self.backward.holding(launches.thread, launches.time)
        optimizer = self.optimizer.holding(launches.thread, launches.time)
        in_backward = backward != host.NO_ROW
        in_optimizer = optimizer != host.NO_ROW
        inner_optimizer = in_optimizer & (~in_backward | (start[optimizer] > start[backward]))
        phase = np.full(len(launches.time), Phase.FORWARD, dtype=np.uint8)
        phase[in_backward] = Phase.BACKWARD
        phase[inner_optimizer] = Phase.OPTIMIZER
        forward = self.ddp_forward.holding(launches.thread, launches.time)
        phase[inner_optimizer & (forward != host.NO_ROW) & (start[forward] > start[optimizer])] = (
            Phase.FORWARD
        )
        phase[~launches.known] = Phase.UNKNOWN
        return phase

    def communicates(self, launches: Launches) -> NDArray[np.bool_]:
        """Whether each launch is a communication operator's own.

        A tensor operator inside it (packing a list of tensors, say) is compute that the operator happens to do.
        """
        operator = self.communication.holding(launches.thread, launches.time)
        inside = np.flatnonzero(operator != host.NO_ROW)
        own = np.zeros(len(operator), dtype=np.bool_)
        if len(inside):
            part = Launches(launches.thread[inside], launches.time[inside])
            own[inside] = ~self._in_tensor_operator(part, operator[inside])
        return own

    def _in_tensor_operator(self, launches: Launches, operator: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Whether a tensor operator stands between each launch and its communication operator."""
        events = self._trace.events
        tensor = host.select(self._trace, lambda name: name.startswith("aten::"))
        threads = self._trace.events.thread[tensor]
        inner = tensor[self.communication.holding(threads, events.start[tensor]) != host.NO_ROW]
        held = host.HostSpans(self._trace, inner).holding(launches.thread, launches.time)
        inside: NDArray[np.bool_] = (held != host.NO_ROW) & (events.start[held] >= events.start[operator])
        return inside


def _is_backends_annotation(name: str) -> bool:
    """NCCL's own annotation (`nccl:all_reduce`): it has the tensors' shapes where its operator has a mere list."""
    return ":" in name and "::" not in name and host.is_communication(name)


def _names_its_kind(name: str) -> bool:
    kind = collectives.operator_kind(name)
    return kind not in (None, collectives.UNKNOWN) and not collectives.is_gloo_span(name)
