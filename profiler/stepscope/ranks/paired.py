"""One collective operation as all its ranks saw it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from stepscope.trace import collectives
from stepscope.trace.recording import CollectiveOp


@dataclass(frozen=True)
class Paired:
    """One collective operation with its executions: index of the recording to what that rank saw of it."""

    members: Mapping[int, CollectiveOp]
    told: int | None = None
    """Its transfer time in ns, where further ranks than the members told it."""

    @cached_property
    def kind(self) -> str:
        """What the operation does."""
        return next(iter(self.members.values())).kind

    @cached_property
    def synchronising(self) -> bool:
        """Whether no data moves before the last rank arrives, so that all ranks end together."""
        return self.kind in collectives.SYNCHRONISING

    @cached_property
    def wire(self) -> int:
        """Transfer time in ns: the shortest of the ranks' durations, that of the one which did not have to wait."""
        if self.told is not None:
            return self.told
        return min(op.end - op.start for op in self.members.values())

    @cached_property
    def last(self) -> int:
        """The recording that arrived last."""
        return min(self.members, key=lambda index: self.members[index].end - self.members[index].start)
