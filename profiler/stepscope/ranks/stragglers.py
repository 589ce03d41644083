"""Who the others wait for: which rank arrives last, how often, and by how much (METRICS section 3)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from stepscope.ranks.paired import Paired
from stepscope.stats import median


@dataclass(frozen=True, slots=True)
class Lateness:
    """One recording's late arrivals at synchronising collectives; ns.

    each: for every collective it was last at, how long the median of the other ranks had been waiting.
    """

    index: int
    joined: int
    each: tuple[int, ...]

    @property
    def last_share(self) -> float:
        """In what share of the collectives it joined it arrived last."""
        return len(self.each) / self.joined

    @property
    def total(self) -> int:
        """All the time that the others waited for it."""
        return sum(self.each)


def find_stragglers(paired: Sequence[Paired]) -> list[Lateness]:
    """The recordings that were ever last, the one that was waited for longest first."""
    joined: dict[int, int] = defaultdict(int)
    late: dict[int, list[int]] = defaultdict(list)
    for one in paired:
        if not one.synchronising or len(one.members) < 2:
            continue
        for index in one.members:
            joined[index] += 1
        others = [op.end - op.start for index, op in one.members.items() if index != one.last]
        late[one.last].append(int(median(others)) - one.wire)
    found = [Lateness(index, joined[index], tuple(each)) for index, each in late.items()]
    return sorted(found, key=lambda lateness: lateness.total, reverse=True)
