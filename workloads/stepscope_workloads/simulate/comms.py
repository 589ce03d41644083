"""How torch's NCCL process group launches a collective, and how the compute stream waits for it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from stepscope_workloads.simulate.causes import BlockingEnvironment, ComputeStream
from stepscope_workloads.simulate.job import US, Job
from stepscope_workloads.simulate.program import COMM, COMPUTE, Arguments, Builder, Event, Exchange


@dataclass(frozen=True, slots=True)
class Launched:
    """A collective that was launched: its task, and the event that stands for its end."""

    task: int
    event: Event


class Communicator:
    """Launches collectives of one process group, numbering them."""

    def __init__(self, builder: Builder, job: Job) -> None:
        self._b, self._job = builder, job
        self._blocking = job.cause(BlockingEnvironment) is not None
        self._stream = COMPUTE if job.cause(ComputeStream) else COMM
        self._sequence = 0

    def start(self, what: Exchange, *, bucket: int | None = None, after_compute: bool = True) -> Launched:
        """Launch a collective; after_compute: its stream waits for what the compute stream holds so far."""
        self._sequence += 1
        b = self._b
        with b.span(what.operator), b.span("record_param_comms", args=self._arguments(what)):
            b.call("cudaStreamIsCapturing")
            if after_compute and self._stream != COMPUTE:
                b.wait(self._stream, b.record(COMPUTE))
            with b.span(what.annotation, "user_annotation", US):
                task = b.collective(what, self._stream, bucket)
            event = b.record(self._stream)
            b.record(self._stream)
            if self._blocking:
                b.block(task)
        return Launched(task, event)

    def finish(self, started: Sequence[Launched]) -> None:
        """The compute stream waits for collectives, as `work.wait()` makes it; on its own stream nothing is to be done."""
        for one in started:
            if self._stream != COMPUTE:
                self._b.wait(COMPUTE, one.event)

    def run(self, what: Exchange) -> None:
        """A collective that the compute stream waits for at once."""
        self.finish([self.start(what)])

    def _arguments(self, what: Exchange) -> Arguments:
        return {
            "Collective name": what.name,
            "dtype": what.dtype,
            "In msg nelems": what.elements_in,
            "Out msg nelems": what.elements_out,
            "In split size": "[]",
            "Out split size": "[]",
            "Global rank start": 0,
            "Global rank stride": 1,
            "Group size": self._job.ranks,
            "Process Group Name": "0",
            "Process Group Description": "default_pg",
            "Process Group Ranks": ranks_text(self._job.ranks),
            "Seq": self._sequence,
        }


def ranks_text(ranks: int) -> str:
    """`Process Group Ranks` as torch writes it: long lists are cut short."""
    if ranks <= 30:
        return "[" + ", ".join(map(str, range(ranks))) + "]"
    return "[" + ", ".join(map(str, range(29))) + f", ..., {ranks - 1}]"
