"""Which runs a sweep makes and in which order: complete shuffled rounds of all candidates, or fewer by successive halving."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Collection, Mapping, Sequence
from statistics import fmean
from typing import NamedTuple

import msgspec

BUCKET_CAP = "bucket-cap-mb"
AS_IN_SCRIPT = "script"
"""The value of a bucket cap that leaves the script's own."""

FEWEST = 2
"""Candidates that halving leaves to the end: a winner needs another one to be measured beside."""


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What makes two sweeps the same one, so that their runs belong together. `--repeat` is no part of it: it may grow."""

    script: str
    arguments: list[str]
    """The script's own."""
    launcher: list[str]
    """torchrun's flags, and --fabric."""
    knobs: dict[str, list[str]]
    """Name to values; a name is bucket-cap-mb, accumulate, zero, a variable's or the fixed part of an argument."""
    flags: dict[str, str]
    """Knobs that go to a flag of the script: name to flag."""
    warmup: int
    steps: int
    seed: int
    halving: bool

    @property
    def candidates(self) -> list[dict[str, str]]:
        """Every combination of the knobs' values."""
        return [
            dict(zip(self.knobs, values, strict=True)) for values in itertools.product(*self.knobs.values())
        ]


def but_for_cap(knobs: Mapping[str, str]) -> dict[str, str]:
    """What a candidate sets besides the bucket cap."""
    return {name: value for name, value in knobs.items() if name != BUCKET_CAP}


class Stage(NamedTuple):
    """So many candidates, the best so far, have made so many rounds at its end."""

    candidates: int
    rounds: int


class Slot(NamedTuple):
    """A run to make; candidates and rounds are counted from 0."""

    round: int
    candidate: int


def stages(candidates: int, repeat: int, *, halving: bool) -> list[Stage]:
    """All candidates `repeat` times; with halving all once, then the better half twice as often, until two are left."""
    made = [Stage(candidates, 1 if halving else repeat)]
    while made[-1].rounds < repeat:
        kept = max(FEWEST, math.ceil(made[-1].candidates / 2))
        last = kept == FEWEST or made[-1].candidates == FEWEST
        made.append(Stage(kept, repeat if last else min(2 * made[-1].rounds, repeat)))
    return made


def runs_of(planned: Sequence[Stage]) -> int:
    """How many runs the stages are."""
    before = [0, *(stage.rounds for stage in planned)]
    return sum(stage.candidates * (stage.rounds - done) for stage, done in zip(planned, before, strict=False))


def round_order(seed: int, number: int, candidates: int) -> list[int]:
    """The candidates in the order of a round: random, and the same for the same seed.

    Every second round is the one before it backwards, so that what drifts over the sweep falls on no candidate alone.
    """
    order = list(range(candidates))
    random.Random(f"{seed}/{number - number % 2}").shuffle(order)
    return order[::-1] if number % 2 else order


def pending(
    plan: Plan, repeat: int, times: Mapping[Slot, float], given_up: Collection[int]
) -> tuple[list[Slot], int]:
    """The runs that are left of the stage that is going on, in order, and how many come in the stages after it.

    times: a step's time in each run that was measured. given_up: candidates that need no further run.
    """
    count = len(plan.candidates)
    alive = [candidate for candidate in range(count) if candidate not in given_up]
    planned = stages(count, repeat, halving=plan.halving)
    for place, stage in enumerate(planned):
        if stage.candidates < count:
            alive = sorted(alive, key=lambda candidate: _typical(times, candidate))[: stage.candidates]
        left = [
            Slot(number, candidate)
            for number in range(stage.rounds)
            for candidate in round_order(plan.seed, number, count)
            if candidate in alive and Slot(number, candidate) not in times
        ]
        if left:
            return left, _later(planned[place:], len(alive))
    return [], 0


def _later(planned: Sequence[Stage], alive: int) -> int:
    return sum(
        min(stage.candidates, alive) * (stage.rounds - before.rounds)
        for before, stage in itertools.pairwise(planned)
    )


def _typical(times: Mapping[Slot, float], candidate: int) -> float:
    return fmean(time for slot, time in times.items() if slot.candidate == candidate)
