"""Audits of jobs whose steps are as long, and as exposed, as a test of a comparison wants."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

import sample_audits as samples
from stepscope.audit.result import Audit, Rank, Step

STEADY = (400.0, 401.0, 399.0, 400.5, 399.5)


def job(
    walls: Sequence[float] = STEADY, *, ranks: int = 2, exposed: float = 60.0, cost: float = 60.0
) -> Audit:
    """Steps of these lengths on every rank, all else as in the samples."""
    base = samples.comm_bound()
    made = [_rank(base.ranks[0], number, walls, exposed, cost) for number in range(ranks)]
    launched = [
        one
        for rank in made
        for place in range(len(walls))
        for one in samples.collectives(rank.rank or 0, place, start=500.0 * place)
    ]
    return replace(base, ranks=made, collectives=launched)


def hiding(hidden: float, comm: float = 180.0) -> Audit:
    """Steps of which backward hides so many ms of gradient communication."""
    base = job()
    ranks = [
        replace(
            rank,
            steps=[
                replace(step, grad=replace(step.grad, comm_ms=comm, hidden_backward_ms=hidden))
                for step in rank.steps
                if step.grad
            ],
        )
        for rank in base.ranks
    ]
    return replace(base, ranks=ranks)


def _rank(base: Rank, number: int, walls: Sequence[float], exposed: float, cost: float) -> Rank:
    steps = [_step(place, wall, exposed, cost) for place, wall in enumerate(walls)]
    return replace(base, rank=number, world_size=2, source=samples.source(number), steps=steps)


def _step(place: int, wall: float, exposed: float, cost: float) -> Step:
    plain = samples.step(place, start=500.0 * place)
    assert plain.grad is not None
    grad = replace(plain.grad, exposed_ms=exposed)
    return replace(plain, wall_ms=wall, cost_ms=cost, grad=grad)
