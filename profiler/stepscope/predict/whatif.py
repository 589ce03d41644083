"""A recorded run under a what-if (another link, more ranks, other accumulation, a ZeRO stage): all caps and the best schedule.

Accumulation and ZeRO add to every step alike, whatever its buckets: what they add is worked out here from the recorded phases.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib.metadata import version

from stepscope import intervals as iv
from stepscope.audit.case import Case, RankStep
from stepscope.audit.causes.rounds import rounds
from stepscope.audit.layout import caps_of
from stepscope.audit.rebucket import Timing
from stepscope.errors import InputError
from stepscope.predict import result
from stepscope.predict.caps import CapPredictor, check_caps, why_not
from stepscope.predict.link import Timed, Wanted, timing_of
from stepscope.replay.assignment import MIB
from stepscope.stats import median
from stepscope.trace.recording import Phase


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked: caps in MiB, and what is otherwise than recorded. batch: samples of a rank and micro-batch."""

    caps_mb: Sequence[float]
    world_size: int | None = None
    link: Wanted = field(default_factory=Wanted)
    accumulate: int | None = None
    zero: int | None = None
    batch: float | None = None


def predict(case: Case, run: str, question: Question) -> result.Predicted:
    """Answer a question from a case; run: its name. Raises InputError where the case or the question allow no answer."""
    check_caps(question.caps_mb)
    about = _About.of(case)
    ranks = question.world_size or about.ranks
    if ranks < 2:
        raise InputError("one rank reduces nothing; give --world-size 2 or more")
    _refuse_sharded(case, question)
    timed = timing_of(case, about.ranks, ranks, question.link)
    as_was = timed.own and ranks == about.ranks
    stage = _Stage(question.zero or 0, about, ranks, timed)
    added = stage.added + ((question.accumulate or about.accumulate) - about.accumulate) * about.micro_batch
    changed = not as_was or stage.number > 1
    predictor = CapPredictor(case, stage.bucket if changed else None, own=timed.own, added=added)
    cap = about.cap_mb
    present = predictor.present(about.bucket_bytes, cap or 0.0)
    wanted = sorted({*question.caps_mb, *([cap] if cap else [])})
    caps = predictor.predict(wanted)
    if wanted and not caps:
        raise InputError(
            "the ranks' gradients differ in number or size; predict needs the same model on every rank"
        )
    choice = predictor.choose(wanted)
    growth = ranks * (question.accumulate or about.accumulate) / (about.ranks * about.accumulate)
    return result.Predicted(
        schema=result.SCHEMA,
        stepscope=version("stepscope"),
        recorded=about.plain(run, predictor),
        what_if=result.WhatIf(
            world_size=question.world_size,
            gb_per_s=question.link.gb_per_s,
            latency_us=question.link.latency_us,
            fabric=question.link.fabric,
            accumulate=question.accumulate,
            zero=question.zero,
        ),
        link=timed.plain,
        present=present,
        caps=caps,
        best_schedule=predictor.best_schedule(),
        recommended_mb=choice.cap_mb,
        alike_mb=list(choice.alike_mb),
        why=choice.why,
        global_batch=question.batch * ranks * (question.accumulate or about.accumulate)
        if question.batch
        else None,
        global_batch_growth=growth,
        noise_scale=_noise_scale(about, growth, question.batch),
        assumptions=[*_assumed(question, about, ranks, predictor), *stage.assumed],
    )


@dataclass(frozen=True, slots=True)
class _About:
    """The recorded run. micro_batch, forward, optimizer: ns of a step's last forward and backward, and of its phases' compute."""

    case: Case
    ranks: int
    bucket_bytes: list[int]
    cap_mb: float | None
    accumulate: int
    micro_batch: float
    forward: float
    optimizer: float

    @classmethod
    def of(cls, case: Case) -> _About:
        """Raises InputError where no gradients are reduced."""
        ones = list(case.rank_steps())
        if not any(one.step.buckets for one in ones):
            raise InputError(why_not(case))
        ops = [op for one in ones for op, _ in one.step.buckets]
        sizes = Counter(op.group_size for op in ops if op.group_size is not None)
        worlds = [r.header.world_size for r in case.recordings if r.header.world_size is not None]
        first = next(one for one in ones if one.step.buckets)
        return cls(
            case=case,
            ranks=sizes.most_common(1)[0][0] if sizes else max(worlds, default=len(case.recordings)),
            bucket_bytes=[op.bytes or 0 for op, _ in first.step.buckets],
            cap_mb=caps[-1] / MIB if (caps := caps_of(case.run)) else None,
            accumulate=int(median([max(1, len(rounds(one))) for one in ones])),
            micro_batch=median([_micro_batch(one) for one in ones]),
            forward=median([_phase(one, Phase.FORWARD) for one in ones]),
            optimizer=median([_phase(one, Phase.OPTIMIZER) for one in ones]),
        )

    def plain(self, run: str, predictor: CapPredictor) -> result.Recorded:
        """For the result."""
        header = self.case.recordings[0].header
        caps = caps_of(self.case.run)
        off_by = predictor.off_by(caps) if caps else None
        return result.Recorded(
            run=run,
            world_size=self.ranks,
            backend=header.backend,
            device=self.case.recordings[0].device,
            steps=predictor.cutting.steps,
            accumulate=self.accumulate,
            bucket_cap_mb=self.cap_mb,
            first_bucket_cap_mb=caps[0] / MIB if caps and caps[0] != caps[-1] else None,
            bucket_bytes=self.bucket_bytes,
            step_ms=predictor.measured / 1e6,
            recorded_step_ms=predictor.recorded / 1e6,
            exposed_ms=predictor.exposed / 1e6,
            check_ms=None if off_by is None else off_by / 1e6,
            slowdown=predictor.cutting.slowdown,
        )


def _micro_batch(one: RankStep) -> float:
    """From the first compute of the step's last forward to the end of its backward."""
    last = rounds(one)[-1:]
    if not last:
        return 0.0
    work = one.recording.compute
    forward = (work.step == one.number) & (work.phase == Phase.FORWARD) & (work.start < last[0].start)
    before = rounds(one)[:-1]
    if before:
        forward &= work.start >= before[-1].end
    begun = int(work.start[forward].min()) if forward.any() else last[0].start
    return float(last[0].end - begun)


def _phase(one: RankStep, phase: Phase) -> float:
    work = one.recording.compute
    mine = (work.step == one.number) & (work.phase == phase)
    return float(iv.total(iv.union(work.start[mine], work.end[mine])))


class _Stage:
    """What a ZeRO stage changes against plain DDP. added: ns to every step. bucket: what a bucket's collective takes in backward.

    Stages 1 to 3 shard the optimizer and so gather parameters again, 2 and 3 reduce-scatter instead of all-reducing: half of
    the all-reduce each (Rajbhandari et al., ZeRO, arXiv 1910.02054, section 7).
    """

    def __init__(self, number: int, about: _About, ranks: int, timed: Timed) -> None:
        self.number, self._time = number, timed.time
        gather = timed.time(sum(about.bucket_bytes)) / 2
        self.added, self.assumed = 0.0, list[str]()
        if not number:
            return
        self.added = -about.optimizer * (1 - 1 / ranks)
        self.assumed.append(
            "ZeRO: each rank updates its share of the parameters, and nothing else of compute changes"
        )
        if number < 3:
            self.added += gather
            self.assumed.append(
                f"ZeRO-{number}: parameters are gathered after the optimizer's step, with nothing to hide behind"
            )
            return
        self.added += max(0.0, gather - about.forward)
        self.assumed.append(
            "ZeRO-3: parameters are gathered in forward as far ahead as the link allows, and again in backward, where the "
            "gathers share the link with the reduce-scatters"
        )

    @property
    def bucket(self) -> Timing:
        """What one bucket has on the link in backward: in stage 2 a reduce-scatter, in stage 3 a gather too."""
        time = self._time
        return (lambda size: time(size) / 2) if self.number == 2 else time


def _noise_scale(about: _About, growth: float, batch: float | None) -> result.NoiseScale | None:
    """Steps to a loss go as 1 + noise scale / batch (McCandlish et al., "An Empirical Model of Large-Batch Training", 2018)."""
    measured = (about.case.run or {}).get("noise_scale") or {}
    scale = measured.get("rank_batches")
    if scale is None:
        return None
    factor = (1 + scale / (about.ranks * growth)) / (1 + scale / about.ranks)
    return result.NoiseScale(
        rank_batches=scale,
        rank_batches_low=measured.get("rank_batches_low"),
        rank_batches_high=measured.get("rank_batches_high"),
        samples=scale * batch * about.accumulate if batch else None,
        steps_factor=factor,
        samples_factor=factor * growth,
    )


def _refuse_sharded(case: Case, question: Question) -> None:
    """A ZeRO answer starts from plain DDP."""
    optimizers = [one["name"] for one in (case.run or {}).get("optimizers", [])]
    if question.zero is not None and "ZeroRedundancyOptimizer" in optimizers:
        raise InputError("the run has ZeRO-1 already; --zero needs a recorded run of plain DDP")


def _assumed(question: Question, about: _About, ranks: int, predictor: CapPredictor) -> list[str]:
    said = [
        "every gradient is there when it was recorded to be; buckets follow DDP's rule and the gradients' order"
    ]
    if predictor.cutting.slowdown is not None:
        said.append(
            f"on this CPU compute takes {predictor.cutting.slowdown:.2f} times as long beside a transfer, as it did when recorded"
        )
    if ranks != about.ranks:
        said.append(
            f"{ranks} ranks instead of {about.ranks}: a flat ring over links like these, the same compute and CPU share for "
            "every rank, and no rank later than they were"
        )
    if question.accumulate not in (None, about.accumulate):
        said.append(
            "a micro-batch more or less is one forward and backward under no_sync, as long as the last one"
        )
    return said
