"""Each host's clock against the first one's, from the ends that synchronising collectives share (METRICS section 3)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stepscope.ranks.paired import Paired
from stepscope.trace.recording import Recording

_ENOUGH_FOR_DRIFT = 10


@dataclass(frozen=True, slots=True)
class Clock:
    """One host's clock: reference time = its time - offset - drift x (its time - origin); ns.

    residual: the 90 % quantile of what the fit leaves; claims about order across hosts that are closer than this are none.
    """

    host: str
    offset: float
    drift: float
    origin: int
    residual: float
    pairs: int


def fit_clocks(recordings: Sequence[Recording], paired: Sequence[Paired]) -> list[Clock]:
    """A clock for every host but the first; ranks of one host share theirs. Empty with one host or no host names."""
    hosts = [recording.header.host for recording in recordings]
    known = [host for host in dict.fromkeys(hosts) if host is not None]
    if len(known) < 2 or None in hosts:
        return []
    shared = _shared_ends(hosts, recordings, paired)
    return [_line(host, *shared[host]) for host in known[1:] if host in shared]


def _shared_ends(
    hosts: Sequence[str | None], recordings: Sequence[Recording], paired: Sequence[Paired]
) -> dict[str | None, tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """By host, when the collectives that it shares with the first one ended there and on the first; of each the first rank's."""
    found: dict[str | None, list[tuple[int, int]]] = defaultdict(list)
    for one in paired:
        if not one.synchronising:
            continue
        ends: dict[str | None, int] = {}
        for index, op in one.members.items():
            ends.setdefault(hosts[index], recordings[index].base_ns + op.end)
        if hosts[0] in ends:
            for host, end in ends.items():
                found[host].append((end, ends[hosts[0]]))
    columns = {host: np.array(pairs, dtype=np.int64) for host, pairs in found.items()}
    return {host: (both[:, 0], both[:, 1]) for host, both in columns.items()}


def _line(host: str, theirs: NDArray[np.int64], ours: NDArray[np.int64]) -> Clock:
    """Offset by the median difference; drift by the median of the slopes (Theil-Sen) where there are pairs enough."""
    origin = int(theirs[0])
    difference = (theirs - ours).astype(np.float64)
    time = (theirs - origin).astype(np.float64)
    drift = 0.0
    if len(theirs) >= _ENOUGH_FOR_DRIFT:
        half = len(theirs) // 2
        apart = time[half:] - time[: len(time) - half]
        slopes = (difference[half:] - difference[: len(time) - half]) / np.maximum(apart, 1.0)
        drift = float(np.median(slopes))
    offset = float(np.median(difference - drift * time))
    left = np.abs(difference - offset - drift * time)
    return Clock(host, offset, drift, origin, float(np.quantile(left, 0.9)), len(theirs))
