"""Which ranks stand for all of them where replaying every one would take too long (METRICS section 6)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from stepscope.ranks.paired import Paired
from stepscope.ranks.pairing import Pairing
from stepscope.ranks.stragglers import find_stragglers

MOST = 64
"""Recordings that are replayed. Their number decides how long a replay takes and how much memory it needs."""


def representatives(count: int, pairing: Pairing, most: int = MOST) -> list[int]:
    """The places of the recordings, of `count`, that are replayed: all, or `most` of them in their order.

    A quarter of those are the ranks that the others waited for longest, since whatever slows a job down makes some rank late, and
    waiting for a rank that is not replayed would be taken for a delay of everybody's own; the rest are spread evenly.
    """
    if count <= most:
        return list(range(count))
    late = [lateness.index for lateness in find_stragglers(pairing.paired)][: max(1, most // 4)]
    others = sorted(set(range(count)) - set(late))
    spread = np.linspace(0, len(others) - 1, most - len(late)).round().astype(int)
    return sorted([*late, *(others[place] for place in spread.tolist())])


def among(pairing: Pairing, chosen: Sequence[int]) -> Pairing:
    """What is left of the pairs between the chosen recordings, which are counted anew in this order.

    Of an operation that has lost ranks the transfer time is kept that all of them told.
    """
    place = {index: k for k, index in enumerate(chosen)}
    paired = []
    for one in pairing.paired:
        members = {place[index]: op for index, op in one.members.items() if index in place}
        told = one.wire if len(members) < len(one.members) else None
        if members:
            paired.append(Paired(members, told))
    return Pairing(tuple(paired), pairing.mispaired, pairing.doubts)
