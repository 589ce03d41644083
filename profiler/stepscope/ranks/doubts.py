"""What makes the files of an audit less than all the ranks of one run, and what is paired across them less sure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from stepscope.ranks.clocks import fit_clocks
from stepscope.ranks.paired import Paired
from stepscope.ranks.strangers import strangers
from stepscope.stats import median
from stepscope.trace.recording import Recording

_ONE_CLOCK = 500_000_000
"""On one host a collective that ranks share ends on all of them within so many ns, whatever the load."""
_ANY_CLOCKS = 60_000_000_000
"""No two hosts' clocks are further apart than so many ns; a run recorded at another time is."""
_SYNCHRONISED = 100_000_000
"""Hosts that keep their clocks by NTP are far closer than so many ns."""
_SAID_ONE_BY_ONE = 5


@dataclass(frozen=True, slots=True)
class Doubt:
    """Something about the files as a set. code is stable, message for people, sources are the files that it is about.

    grave: nothing that one file says of another can be relied on; else some of it is missing. void: together they can't carry a
    verdict.
    """

    code: str
    message: str
    grave: bool
    sources: tuple[str, ...] = ()
    void: bool = False


def doubts_before(recordings: Sequence[Recording]) -> list[Doubt]:
    """What each file's own account of rank, run and gradients tells; after a grave doubt nothing may be paired.

    InputError where they are certainly of no one run.
    """
    of_headers = (*_repeated(recordings), *_unknown(recordings), *_not_one_run(recordings))
    return [*_strangers(recordings), *of_headers, *_missing(recordings)]


def doubts_after(
    recordings: Sequence[Recording], paired: Sequence[Paired], mispaired: Sequence[str]
) -> list[Doubt]:
    """What laying their collectives side by side shows; after a grave doubt the pairs are chance."""
    found = [*_at_other_times(recordings, paired, mispaired), *_mispaired(mispaired, grave=not paired)]
    return found if any(doubt.grave for doubt in found) else [*found, *_clocks_apart(recordings, paired)]


def groups_unknown(undecided: int) -> list[Doubt]:
    """Operations that don't say of which process group they are, where several groups would fit."""
    if not undecided:
        return []
    text = (
        f"{undecided} collectives do not say which process group they are of, and fit several: waiting for another rank can't be "
        "told from transfer; audit the files of one group by themselves"
    )
    return [Doubt("groups-unknown", text, grave=False, void=True)]


def _strangers(recordings: Sequence[Recording]) -> list[Doubt]:
    text = strangers(recordings)
    if text is None:
        return []
    advice = "they are of different runs or windows; audit them one by one"
    return [Doubt("different-runs", f"{text}: {advice}", grave=True, void=True)]


def _repeated(recordings: Sequence[Recording]) -> list[Doubt]:
    by_rank: dict[int, list[str]] = defaultdict(list)
    for recording in recordings:
        if recording.header.rank is not None:
            by_rank[recording.header.rank].append(recording.source)
    return [
        Doubt(
            "same-rank-twice",
            f"rank {rank} is in {len(sources)} files: kept apart as {len(sources)} recordings of that rank",
            grave=True,
            sources=tuple(sources),
        )
        for rank, sources in sorted(by_rank.items())
        if len(sources) > 1
    ]


def _unknown(recordings: Sequence[Recording]) -> list[Doubt]:
    sources = tuple(recording.source for recording in recordings if recording.header.rank is None)
    if not sources or len(recordings) < 2:
        return []
    message = (
        f"{len(sources)} of {len(recordings)} files do not say which rank they are: no collective is paired"
    )
    return [Doubt("rank-unknown", message, grave=True, sources=sources)]


def _not_one_run(recordings: Sequence[Recording]) -> list[Doubt]:
    headers = [recording.header for recording in recordings]
    worlds = sorted({header.world_size for header in headers if header.world_size is not None})
    backends = sorted({header.backend for header in headers if header.backend is not None})
    beyond = sorted({h.rank for h in headers if h.rank is not None and worlds and h.rank >= worlds[0]})
    if len(worlds) > 1:
        text = f"the files come from runs of different world sizes ({', '.join(map(str, worlds))})"
    elif len(backends) > 1:
        text = f"the files come from runs on different backends ({', '.join(backends)})"
    elif beyond:
        text = f"rank {', '.join(map(str, beyond))} can't be of a run of {worlds[0]} ranks"
    else:
        return []
    return [Doubt("different-runs", f"{text}: no collective is paired", grave=True, void=True)]


def _missing(recordings: Sequence[Recording]) -> list[Doubt]:
    headers = [recording.header for recording in recordings]
    world = max((header.world_size for header in headers if header.world_size is not None), default=0)
    here = len({header.rank for header in headers if header.rank is not None})
    if not 0 < here < world:
        return []
    hidden = "for the other ranks" if here == 1 else "for a rank that is missing"
    text = f"{here} of {world} ranks {'is' if here == 1 else 'are'} here: waiting {hidden} can't be told from transfer"
    return [Doubt("ranks-missing", text, grave=False)]


def _at_other_times(
    recordings: Sequence[Recording], paired: Sequence[Paired], mispaired: Sequence[str]
) -> list[Doubt]:
    """The ends that a pair shares must be one moment, as far as clocks go; a run at another time may be the same job again."""
    apart: dict[tuple[int, int], list[int]] = defaultdict(list)
    for one in paired:
        if one.synchronising:
            first, *others = sorted(one.members)
            start = recordings[first].base_ns + one.members[first].end
            for index in others:
                apart[first, index].append(recordings[index].base_ns + one.members[index].end - start)
    for (first, index), differences in apart.items():
        hosts = {recordings[k].header.host for k in (first, index)}
        most = _ONE_CLOCK if len(hosts) == 1 and None not in hosts else _ANY_CLOCKS
        middle = abs(median(differences))
        if middle > most:
            ranks = " and ".join(str(recordings[k].header.rank) for k in (first, index))
            text = f"what would be the same collectives on ranks {ranks} ended {middle / 1e9:,.1f} s apart"
            text += ", and others are on some ranks only" if mispaired else ""
            text += ": they are of different runs, and none is paired"
            return [Doubt("different-runs", text, grave=True, void=bool(mispaired))]
    return []


def _mispaired(mispaired: Sequence[str], *, grave: bool) -> list[Doubt]:
    said = [Doubt("mispaired", text, grave) for text in mispaired[:_SAID_ONE_BY_ONE]]
    more = len(mispaired) - len(said)
    if more:
        said.append(Doubt("mispaired", f"the ranks disagree about {more} more kinds of collectives", grave))
    return said


def _clocks_apart(recordings: Sequence[Recording], paired: Sequence[Paired]) -> list[Doubt]:
    return [
        Doubt(
            "clocks-apart",
            f"the clock of {clock.host} is {abs(clock.offset) / 1e6:,.0f} ms {'ahead of' if clock.offset > 0 else 'behind'} the "
            f"first host's: taken out by the ends of {clock.pairs} collectives, {clock.residual / 1e6:.3f} ms are left",
            grave=False,
        )
        for clock in fit_clocks(recordings, paired)
        if abs(clock.offset) > _SYNCHRONISED
    ]
