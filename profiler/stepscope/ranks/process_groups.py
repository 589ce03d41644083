"""Process groups as the files describe them, and of which of them a collective is that does not say so: gloo's never do."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from stepscope.trace.columns import Header

Ranks = frozenset[int]


def known_groups(header: Header) -> dict[str, Ranks]:
    """The ranks of each process group that a file describes; empty of one whose ranks it does not tell."""
    return {str(row.get("pg_name")): _ranks(row, header.world_size) for row in header.groups}


def _ranks(row: Mapping[str, object], world: int | None) -> Ranks:
    ranks, size = row.get("ranks"), row.get("pg_size")
    if isinstance(ranks, list) and len(ranks) == size and all(isinstance(rank, int) for rank in ranks):
        return frozenset(ranks)
    return frozenset(range(world)) if world is not None and size == world else frozenset()


def divisions(counts: Mapping[int, int], groups: Mapping[int, Collection[Ranks]]) -> Iterator[list[Ranks]]:
    """The ways to divide like operations among groups: where there are two, nobody knows of which each operation is.

    counts: by rank, how many such operations it made. groups: those of every rank that is here; of a group, those that are here
    count, and made equally many.
    """
    here = {rank: {group.intersection(groups) for group in its} for rank, its in groups.items()}
    tried: list[tuple[dict[int, int], list[Ranks]]] = [(dict(counts), [])]
    while tried:
        left, chosen = tried.pop()
        if not left:
            yield chosen
            continue
        rank, count = min(left.items())
        for group in here[rank]:
            if all(left.get(member) == count and group in here[member] for member in group):
                rest = {other: made for other, made in left.items() if other not in group}
                tried.append((rest, [*chosen, group]))
