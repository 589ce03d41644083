"""The recorder inside each rank: waits, warms up, records a few training steps, times a few more, then gets out of the way."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

import msgspec

from stepscope.capture import settings
from stepscope.capture.bucket_cap import BucketCapOverride
from stepscope.capture.clock import StepClock
from stepscope.capture.config import TIMED_AFTER, CaptureConfig
from stepscope.capture.forks import off_in_forked_children
from stepscope.capture.gradient_norms import GradientNorms
from stepscope.capture.hooks import StepHooks
from stepscope.capture.metadata import RANK_FILE, Optimizer, RankMetadata, StepTime, write_json
from stepscope.capture.modules import ModuleWatch
from stepscope.capture.notice import warn
from stepscope.capture.session import TRACE_FILE, OtherProfilers, Session
from stepscope.capture.termination import TerminationGuard
from stepscope.capture.timing import StepTimer

START_UP_STEPS = 2
"""DDP rebuilds its buckets at step 1, with static_graph after it: neither of the first two is timed."""

BY_HAND = -1
"""The key of steps that the script tells itself."""


class State(enum.Enum):
    """Where a recording is."""

    WAITING = "waiting"
    WARMING = "warming"
    RECORDING = "recording"
    TIMING = "timing"
    DONE = "done"


@dataclass
class Take:
    """One attempt at a recording, by the steps of the optimizer `key`; it counts once it has a trace."""

    key: int
    session: Session
    kinds: dict[int, str] = field(default_factory=lambda: dict.fromkeys(range(START_UP_STEPS), "start-up"))
    """What each step was that is not an unprofiled one, as in StepTime."""
    trace: str | None = None
    problem: str | None = None
    """Why it holds less than asked for."""
    times: list[StepTime] = field(default_factory=list)
    timed_after: int = 0


class Recorder:
    """Records the steps of this process into `config.run_dir`.

    `install` it before the script trains and `finish` it when the script is over, however that came about.
    """

    running: ClassVar[Recorder | None] = None
    """The one that is installed: a process has one profiler."""

    def __init__(self, config: CaptureConfig) -> None:
        self._config = config
        self._state = State.WAITING
        self._take: Take | None = None
        """The attempt that is going on, until everything about it is measured."""
        self._kept: Take | None = None
        """The last attempt that gave a trace."""
        self._problem: str | None = None
        self._error: str | None = None
        self._told_of_the_disk = False
        self._ended = False
        self.is_inherited = False
        """This process is a forked child of the one that was recorded."""
        self._clock = StepClock()
        self._timer = StepTimer()
        self._other_steps: set[int] = set()
        self._skipped: list[int] = []
        self._others = OtherProfilers(self._yield_to_other)
        self._hooks = StepHooks(self.optimizer_stepped)
        self._modules = ModuleWatch()
        self._bucket_cap = None if config.bucket_cap_mb is None else BucketCapOverride(config.bucket_cap_mb)
        self._norms = GradientNorms(self._all_measured) if config.noise_scale else None
        self._guard = TerminationGuard(self.finish)
        self._identity = settings.identity(None)

    def install(self) -> None:
        """Begin to listen, and leave a first sign of life in the run directory; an earlier attempt of this rank gives way."""
        Recorder.running = self
        off_in_forked_children(self)
        for earlier in Path(self._config.trace_dir).glob(
            TRACE_FILE.format(rank=self._identity.rank, nanoseconds="*")
        ):
            earlier.unlink()
        if self._bucket_cap is not None:
            self._bucket_cap.install()
        self._others.install()
        self._hooks.install()
        self._modules.install()
        self._write()

    def optimizer_stepped(self, key: int, skipped: bool) -> None:
        """An optimizer's step has ended; where it ends a training step too, move on."""
        if self._state is State.DONE:
            return
        end = self._timer.now()
        self._clock.observe(key)
        if self._clock.key == key:
            if skipped:
                self._skipped.append(self._clock.steps - 1)
            self._step_ended(key, self._clock.steps)
        self._timer.mark(key, self._clock.counts[key] - 1, end)
        if self._take is not None and self._take.timed_after > TIMED_AFTER:
            self._measured()

    def stepped_by_hand(self) -> None:
        """The script says itself that a training step has ended."""
        if BY_HAND not in self._clock.counts:
            self._hooks.remove()
            self._clock = StepClock()
        self.optimizer_stepped(BY_HAND, False)

    def finish(self, error: str | None = None) -> None:
        """The script is over: keep what was recorded whole, say what is missing. Calling it again changes nothing."""
        if self._ended:
            return
        with self._guard:
            self._ended, self._error = True, error
            if self._state in (State.WARMING, State.RECORDING):
                self._end_recording("the script ended")
            if self._kept is None and self._problem is None:
                self._problem = self._why_nothing_was_recorded()
            self._remove()
            if self._norms is not None:
                self._norms.remove()
            self._write()
            Recorder.running = None
        if self._config.gather and error is None:
            self._hand_over()

    def turn_off(self) -> None:
        """This is a forked child: it has no profiler, and nothing of what was recorded is its own."""
        self._ended = self.is_inherited = True
        self._guard.recording(False)
        self._kept = None
        self._remove()
        if self._norms is not None:
            self._norms.remove()

    def _hand_over(self) -> None:
        # here, for it imports the reader, which no training step needs
        from stepscope.capture.handover import hand_over

        metadata = self._metadata()
        problem = hand_over(self._config, metadata)
        if problem is not None:
            self._save(msgspec.structs.replace(metadata, problem=metadata.problem or problem))

    def _step_ended(self, key: int, steps: int) -> None:
        """`steps` training steps are complete; the next one has that number."""
        if self._take is not None and self._take.key != key:
            self._abandon()  # an optimizer that steps more rarely has turned up: it is the clock
        if self._others.active:
            self._other_steps.add(steps - 1)
        if self._state is State.WAITING:
            self._prepare(key, steps)
        elif self._state is State.WARMING:
            self._start(self._going_on, steps)
        elif self._state is State.RECORDING:
            self._next_recorded_step(self._going_on, steps)
        elif self._state is State.TIMING:
            self._going_on.timed_after += 1

    @property
    def _going_on(self) -> Take:
        assert self._take is not None
        return self._take

    def _prepare(self, key: int, steps: int) -> None:
        if steps < self._config.warmup - 1 or self._others.active:
            return
        take = self._take = Take(key, Session(with_stack=self._config.with_stack))
        with self._others.ours():
            take.session.prepare()
        self._state = State.WARMING
        if self._config.warmup == 1:
            self._start(take, steps)
        else:
            take.kinds[steps] = "profiler-warm-up"

    def _start(self, take: Take, steps: int) -> None:
        with self._guard:  # one that is told to end meanwhile must not start the profiler again
            self._guard.recording(True)
            with self._others.ours():
                take.session.start()
            self._state = State.RECORDING
        self._begin_step(take, steps)

    def _next_recorded_step(self, take: Take, steps: int) -> None:
        take.session.end_step()
        if len(take.session.completed) == self._config.steps:
            self._end_recording("")
        else:
            self._begin_step(take, steps)

    def _begin_step(self, take: Take, step: int) -> None:
        with self._others.ours():
            take.session.begin_step(step)
        take.kinds[step] = "recorded"

    def _yield_to_other(self) -> None:
        """The script starts a profiler of its own: it goes first."""
        if self._state in (State.WARMING, State.RECORDING):
            self._end_recording("the script started a profiler of its own")

    def _abandon(self) -> None:
        """Leave this attempt and wait for another chance; a trace that it gave stays until a better one is there."""
        with self._guard:
            if self._state is State.WARMING:  # there is no other way to end a profiler that is only prepared
                with self._others.ours():
                    self._going_on.session.start()
            if self._state in (State.WARMING, State.RECORDING):
                self._stop(self._going_on)
            self._take = None
            self._state = State.WAITING

    def _stop(self, take: Take) -> None:
        with self._others.ours():
            take.session.stop()
        self._guard.recording(False)

    def _end_recording(self, why: str) -> None:
        """Stop the profiler and keep the trace, if it holds a whole step; `why` it ends early."""
        take = self._going_on
        if not take.session.completed:
            self._abandon()
            return
        with self._guard:
            self._stop(take)
            recorded = len(take.session.completed)
            if recorded < self._config.steps:
                take.problem = f"{why} after {recorded} of {self._config.steps} recorded steps"
            self._export(take)
            take.kinds[take.session.completed[-1] + 1] = "after-export"
            self._modules.read()
            self._state = State.TIMING
            self._write()

    def _export(self, take: Take) -> None:
        directory = Path(self._config.trace_dir)
        try:
            take.trace = take.session.export(directory, self._identity.rank)
        except OSError as error:  # the script must not die of our disk
            self._problem = f"the trace could not be written: {error.strerror}"
            return
        if self._kept is not None and self._kept.trace is not None:
            (directory / self._kept.trace).unlink()
        self._kept = take

    def _measured(self) -> None:
        self._remove()
        if self._norms is not None:
            self._norms.start()
        else:
            self._all_measured()

    def _all_measured(self) -> None:
        self._write()
        if self._config.stop:
            raise SystemExit(0)

    def _remove(self) -> None:
        if self._state is State.DONE:
            return
        self._state = State.DONE
        self._hooks.remove()
        self._others.remove()
        self._modules.remove()
        if self._kept is not None:
            others = dict.fromkeys(self._other_steps, "other-profiler")
            self._kept.times = self._timer.times(self._kept.key, {**others, **self._kept.kinds})

    def _why_nothing_was_recorded(self) -> str:
        seen, asked = self._clock.steps, self._config
        if seen == 0:
            return "the script made no optimizer step; mark its steps by hand with `stepscope.record` (see its help)"
        if self._others.seen:
            return (
                "the script's own profiler left no room for another; audit its traces with `stepscope audit`"
            )
        few = f"the script made only {seen} of the {asked.warmup + asked.steps} steps needed"
        advice = "let it make more"
        if seen >= 2:
            steps = min(asked.steps, max(1, seen // 3))
            advice += f", or pass --warmup {seen - steps} --steps {steps}"
        if len(self._clock.counts) > 1:
            few += " with one optimizer"
            advice += ", or mark the steps of all optimizers with `rec.step()`, see help(stepscope.record)"
        return f"{few}; {advice}"

    def _write(self) -> None:
        self._save(self._metadata())

    def _save(self, metadata: RankMetadata) -> None:
        """The script must not die of our disk, here either."""
        try:
            write_json(Path(self._config.run_dir) / RANK_FILE.format(rank=metadata.rank), metadata)
        except OSError as error:
            if not self._told_of_the_disk:
                warn(f"rank {metadata.rank} cannot write into {self._config.run_dir}: {error.strerror}")
            self._told_of_the_disk = True

    def _metadata(self) -> RankMetadata:
        identity = self._identity = settings.identity(self._identity)
        kept = self._kept
        clock_key = kept.key if kept is not None else self._clock.key
        return RankMetadata(
            rank=identity.rank,
            local_rank=identity.local_rank,
            world_size=identity.world_size,
            host=identity.host,
            pid=identity.pid,
            launch_id=self._config.launch_id,
            state="ended" if self._ended else "recorded" if kept is not None else "running",
            written_ns=settings.wall_clock_ns(),
            steps_seen=self._clock.steps,
            device=identity.device,
            backend=identity.backend,
            trace=kept.trace if kept is not None else None,
            recorded_steps=kept.session.completed if kept is not None else [],
            unfinished_step=kept.session.unfinished if kept is not None else None,
            problem=kept.problem if kept is not None else self._problem,
            error=self._error,
            optimizers=[
                Optimizer(name=self._hooks.names.get(key, "by hand"), steps=count, is_clock=key == clock_key)
                for key, count in self._clock.counts.items()
            ],
            skipped_by_grad_scaler=self._skipped,
            step_times=kept.times if kept is not None else [],
            ddp=self._modules.ddp,
            replaced_bucket_caps_mb=self._bucket_cap.replaced if self._bucket_cap is not None else [],
            fsdp=self._modules.fsdp,
            gradient_norms=self._norms.samples if self._norms is not None else [],
            gradient_norms_problem=self._norms.problem if self._norms is not None else None,
            versions=settings.versions(),
            environment=settings.environment(),
        )
