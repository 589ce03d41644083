"""One collective operation as all its ranks saw it."""

from __future__ import annotations

from dataclasses import dataclass

from stepscope.trace import collectives
from stepscope.trace.recording import CollectiveOp


@dataclass(frozen=True, slots=True)
class Paired:
    """One collective operation with its executions: index of the recording to what that rank saw of it."""

    members: dict[int, CollectiveOp]

    @property
    def kind(self) -> str:
        """What the operation does."""
        return next(iter(self.members.values())).kind

    @property
    def synchronising(self) -> bool:
        """Whether no data moves before the last rank arrives, so that all ranks end together."""
        return self.kind in collectives.SYNCHRONISING

    @property
    def wire(self) -> int:
        """Transfer time in ns: the shortest of the ranks' durations, that of the one which did not have to wait."""
        return min(op.end - op.start for op in self.members.values())

    @property
    def last(self) -> int:
        """The recording that arrived last."""
        return min(self.members, key=lambda index: self.members[index].end - self.members[index].start)
