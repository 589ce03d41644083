"""What the definitions of all peers are computed from: one file as our audit measured it, and its rows as they are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import numpy as np

from stepscope import intervals as iv
from stepscope.audit.result import Rank, Step
from stepscope.errors import InputError
from stepscope.intervals import Intervals
from stepscope.second_opinion.result import Rung
from stepscope.trace.chunks import StreamCut, blocks
from stepscope.trace.recording import CollectiveOp, Phase, Recording
from stepscope.units import ns_to_ms


class Arguments(msgspec.Struct, rename={"external_id": "External id", "old_external_id": "external id"}):
    """Of a row's `args`, what links a kernel to the operator that launched it."""

    external_id: int | str | None = None
    old_external_id: int | str | None = None


class Row(msgspec.Struct):
    """A row of `traceEvents`, with times in microseconds as the file has them."""

    name: str = ""
    cat: str | None = None
    ph: str | None = None
    ts: float | None = None
    dur: float | None = None
    args: Arguments | None = None

    @property
    def external_id(self) -> int | str | None:
        """The operator's number, by either spelling."""
        if self.args is None:
            return None
        old = self.args.old_external_id
        return self.args.external_id if old is None else old


class RawFile(msgspec.Struct, rename={"rows": "traceEvents", "base_ns": "baseTimeNanoseconds"}):
    """A file as a peer reads it: the complete events, those that our reader has no use for among them."""

    rows: list[Row] = []
    base_ns: int | None = None
    """What the file's times count from, in ns since the epoch; None where that is the epoch itself."""


def read_raw(path: Path) -> RawFile:
    """The rows of a file. InputError where it is not whole."""
    try:
        raw = msgspec.json.decode(b"".join(blocks(path)), type=RawFile, strict=False)
    except (StreamCut, msgspec.DecodeError) as error:
        raise InputError(
            f"{path}: no whole Kineto trace ({error or 'cut off'}), which no peer reads"
        ) from error
    raw.rows = [row for row in raw.rows if row.ph == "X" and row.ts is not None and row.dur is not None]
    return raw


@dataclass(frozen=True, slots=True)
class Counted:
    """What a definition counts as communication and as compute."""

    comm: Intervals
    compute: Intervals

    @property
    def overlap(self) -> float | None:
        """The share of communication beside compute; None without communication."""
        comm = iv.total(self.comm)
        return iv.total(iv.intersect(self.comm, self.compute)) / comm if comm else None

    @property
    def comm_ms(self) -> float:
        """Length of the union of communication."""
        return ns_to_ms(iv.total(self.comm))

    @property
    def compute_ms(self) -> float:
        """Length of the union of compute."""
        return ns_to_ms(iv.total(self.compute))


@dataclass(frozen=True, slots=True)
class FileFacts:
    """One file: classified, measured, and raw."""

    recording: Recording
    rank: Rank
    """The same file in the audit."""
    raw: RawFile = field(repr=False)

    @property
    def rows(self) -> list[Row]:
        """The complete events."""
        return self.raw.rows

    @property
    def counted_steps(self) -> list[Step]:
        """The steps that the verdict counts."""
        return [step for step in self.rank.steps if step.valid]

    def our_overlap(self) -> float | None:
        """Overlap with backward of the gradients, in the counted steps: what audit.json says of this file."""
        grads = [step.grad for step in self.counted_steps if step.grad is not None]
        comm = sum(grad.comm_ms for grad in grads)
        return sum(grad.hidden_backward_ms for grad in grads) / comm if comm else None

    def everything(self) -> Counted:
        """All collectives and all compute of the file, by our own classes."""
        compute = self.recording.compute
        return Counted(_union(self.recording.collectives), iv.union(compute.start, compute.end))

    def overlap_rungs(self) -> list[Rung]:
        """From our overlap to that of everything in the file, which is where peers begin; each rung drops one restriction."""
        recording = self.recording
        steps = [step.step for step in self.counted_steps]
        whole = self.everything()
        mine = _union([op for op in recording.collectives if op.step in steps])
        backward = recording.compute.where(recording.compute.phase == Phase.BACKWARD)
        beside_backward = Counted(mine, iv.union(backward.start, backward.end))
        return [
            Rung(definition="stepscope: gradients beside backward, counted steps", value=self.our_overlap()),
            Rung(definition="all collectives, not gradients alone", value=beside_backward.overlap),
            Rung(
                definition="beside any compute: forward and optimizer too",
                value=Counted(mine, whole.compute).overlap,
            ),
            Rung(definition="all of the file: warm-up and uncounted steps too", value=whole.overlap),
        ]


def _union(ops: Sequence[CollectiveOp]) -> Intervals:
    return iv.union(
        np.array([op.start for op in ops], dtype=np.int64), np.array([op.end for op in ops], dtype=np.int64)
    )
