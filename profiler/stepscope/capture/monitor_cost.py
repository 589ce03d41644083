"""What monitoring costs: the steps that it touches against those between them, by the host's clock."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from statistics import median

_FEW = 5
"""With fewer quiet steps their median is little more than one step's time."""


class Kind(enum.Enum):
    """What a monitor did to a step."""

    QUIET = "quiet"
    TOUCHED = "touched"
    """It warmed the profiler up, was recorded, or began with writing the trace."""
    BESIDE = "beside"
    """Its trace's predecessor was read and audited meanwhile."""


@dataclass(frozen=True)
class Cost:
    """Of one recorded step; ms."""

    cost_ms: float
    """What the touched steps took longer than a quiet one, and those beside an audit."""
    quiet_step_ms: float
    share: float
    """Of the time that the steps would have taken without the monitor."""


class MonitorCost:
    """Times steps from end to end, so that nothing that happens between two of them is lost."""

    def __init__(self) -> None:
        self._last: int | None = None
        self._took: dict[Kind, list[float]] = {kind: [] for kind in Kind}
        self.known, self.lost_ms, self.quiet_ms, self.compared = 0, 0.0, 0.0, 0
        """Of how many recorded steps the cost is known, their cost, what all steps would have taken; quiet steps behind it."""

    def step_ended(self, kind: Kind, now: int) -> None:
        """Note that a step of that kind ended at `now` (ns) and the next begins. The first call only starts the clock."""
        if self._last is not None:
            self._took[kind].append((now - self._last) / 1e6)
        self._last = now

    def taken(self) -> Cost | None:
        """The cost of the last recorded step; counting begins anew. None without a quiet step to compare with."""
        took, self._took = self._took, {kind: [] for kind in Kind}
        if not took[Kind.QUIET]:
            return None
        quiet = median(took[Kind.QUIET])
        cost = sum(one - quiet for one in took[Kind.TOUCHED])
        if took[Kind.BESIDE]:  # many short differences, each with its noise: the typical one counts
            cost += len(took[Kind.BESIDE]) * (median(took[Kind.BESIDE]) - quiet)
        whole = quiet * sum(map(len, took.values()))
        self.known += 1
        self.lost_ms += cost
        self.quiet_ms += whole
        self.compared += len(took[Kind.QUIET])
        return Cost(cost_ms=cost, quiet_step_ms=quiet, share=cost / whole)

    def in_words(self, recorded: int) -> str:
        """What it has cost so far, of so many recorded steps, for the end of a line."""
        if not self.known:
            return "too few steps lie between them to say what that took; a larger N would tell"
        share = self.lost_ms / self.quiet_ms
        if share <= 0:
            told = "that took no longer than steps differ by themselves"
        elif share < 1:
            told = f"that took {self.lost_ms / self.known:.0f} ms each, {share * 100:.2f} % of the time"
        else:
            told = (
                f"that took {self.lost_ms / self.known:.0f} ms each, {share:.1f} times as long as the steps themselves; "
                "a larger N costs less"
            )
        doubts = []
        if self.known < recorded:
            doubts.append(f"known of {self.known} of them")
        if self.compared < _FEW:
            doubts.append(f"by {self.compared} quiet step{'s' * (self.compared > 1)} only")
        return f"{told} ({', '.join(doubts)})" if doubts else told
