"""One figure of a peer beside ours: the rungs between the two, and what they leave unexplained."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from stepscope.second_opinion.result import Figure, Rung

Answer = Mapping[str, float | None]
"""What a peer said of one file, by the name of the figure."""


def figure(name: str, unit: str, rungs: Sequence[Rung], theirs: float | None, tolerance: float) -> Figure:
    """The figure whose first rung is our definition and whose last is the peer's."""
    by_us = rungs[-1].value
    unexplained = theirs - by_us if theirs is not None and by_us is not None else None
    return Figure(
        figure=name,
        unit=unit,
        ours=rungs[0].value,
        theirs=theirs,
        rungs=list(rungs),
        theirs_by_us=by_us,
        unexplained=unexplained,
        tolerance=tolerance,
        agrees=None if theirs is None else unexplained is not None and abs(unexplained) <= tolerance,
    )
