"""The recorder inside each rank: waits, warms up, records a few training steps, times a few more, then gets out of the way."""

from __future__ import annotations

import enum
from pathlib import Path
from typing import ClassVar

from stepscope.capture import settings
from stepscope.capture.clock import StepClock
from stepscope.capture.config import TIMED_AFTER, CaptureConfig
from stepscope.capture.hooks import StepHooks
from stepscope.capture.metadata import RANK_FILE, Optimizer, RankMetadata, StepTime, write_json
from stepscope.capture.modules import ModuleWatch
from stepscope.capture.session import OtherProfilers, Session
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


class Recorder:
    """Records the steps of this process into `config.run_dir`.

    `install` it before the script trains and `finish` it when the script is over, however that came about.
    """

    running: ClassVar[Recorder | None] = None
    """The one that is installed: a process has one profiler."""

    def __init__(self, config: CaptureConfig) -> None:
        self._config = config
        self._state = State.WAITING
        self._trace: str | None = None
        self._recorded: list[int] = []
        self._unfinished: int | None = None
        self._problem: str | None = None
        self._error: str | None = None
        self._ended = False
        self._clock = StepClock()
        self._timer = StepTimer()
        self._kinds: dict[int, str] = dict.fromkeys(range(START_UP_STEPS), "start-up")
        self._skipped: list[int] = []
        self._times: list[StepTime] = []
        self._timed_after = 0
        self._session: Session | None = None
        self._session_key: int | None = None
        self._others = OtherProfilers(self._yield_to_other)
        self._hooks = StepHooks(self.optimizer_stepped)
        self._modules = ModuleWatch()
        self._guard = TerminationGuard(self.finish)
        self._identity = settings.identity(None)

    @property
    def local_rank(self) -> int:
        """Which process of its host this is."""
        return self._identity.local_rank

    def install(self) -> None:
        """Begin to listen, and leave a first sign of life in the run directory."""
        Recorder.running = self
        self._hooks.install()
        self._others.install()
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
        if self._state is State.TIMING and self._timed_after > TIMED_AFTER:
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
            if self._session is not None:
                self._end_recording("the script ended")
            if self._trace is None and self._problem is None:
                self._problem = self._why_nothing_was_recorded()
            self._remove()
            self._write()
            Recorder.running = None

    def _step_ended(self, key: int, steps: int) -> None:
        """`steps` training steps are complete; the next one has that number."""
        if self._session is not None and self._session_key != key:
            self._discard()  # an optimizer that steps more rarely has turned up: it is the clock
        if self._others.active:
            self._kinds[steps - 1] = "other-profiler"
        if self._state is State.WAITING:
            self._prepare(key, steps)
        elif self._state is State.WARMING:
            self._start(steps)
        elif self._state is State.RECORDING:
            self._next_recorded_step(steps)
        elif self._state is State.TIMING:
            self._timed_after += 1

    def _prepare(self, key: int, steps: int) -> None:
        if steps < self._config.warmup - 1 or self._others.active:
            return
        self._session, self._session_key = Session(with_stack=self._config.with_stack), key
        with self._others.ours():
            self._session.prepare()
        self._state = State.WARMING
        if self._config.warmup == 1:
            self._start(steps)
        else:
            self._kinds[steps] = "profiler-warm-up"

    def _start(self, steps: int) -> None:
        assert self._session is not None
        self._guard.recording(True)
        with self._others.ours():
            self._session.start()
        self._state = State.RECORDING
        self._session.begin_step(steps)
        self._kinds[steps] = "recorded"

    def _next_recorded_step(self, steps: int) -> None:
        assert self._session is not None
        self._session.end_step()
        if len(self._session.completed) == self._config.steps:
            self._end_recording("")
        else:
            self._session.begin_step(steps)
            self._kinds[steps] = "recorded"

    def _yield_to_other(self) -> None:
        """The script starts a profiler of its own: it goes first."""
        if self._session is not None:
            self._end_recording("the script started a profiler of its own")

    def _discard(self) -> None:
        """Stop the profiler and wait for another chance."""
        assert self._session is not None
        session, self._session = self._session, None
        for step in (*session.completed, session.unfinished):
            if step is not None:
                self._kinds[step] = "discarded"
        if self._state is State.RECORDING:
            with self._others.ours():
                session.stop()
            self._guard.recording(False)
        self._state = State.WAITING

    def _end_recording(self, why: str) -> None:
        """Stop the profiler and keep the trace, if it holds a whole step; `why` it ends early."""
        assert self._session is not None
        if not self._session.completed:
            self._discard()
            return
        session, self._session = self._session, None
        with self._guard:
            with self._others.ours():
                session.stop()
            self._guard.recording(False)
            self._recorded, self._unfinished = session.completed, session.unfinished
            if len(self._recorded) < self._config.steps:
                self._problem = f"{why} after {len(self._recorded)} of {self._config.steps} recorded steps"
            try:
                self._trace = session.export(Path(self._config.run_dir), self._identity.rank)
            except OSError as error:  # the script must not die of our disk
                self._problem = f"the trace could not be written: {error.strerror}"
            self._kinds[self._recorded[-1] + 1] = "after-export"
            self._modules.read()
            self._state = State.TIMING
            self._write()

    def _measured(self) -> None:
        self._remove()
        self._write()
        if self._config.stop:
            raise SystemExit(0)

    def _remove(self) -> None:
        self._state = State.DONE
        self._hooks.remove()
        self._others.remove()
        self._modules.remove()
        key = self._clock_key
        if key is not None and not self._times:
            self._times = self._timer.times(key, self._kinds)

    @property
    def _clock_key(self) -> int | None:
        return self._session_key if self._trace is not None else self._clock.key

    def _why_nothing_was_recorded(self) -> str:
        seen, asked = self._clock.steps, self._config
        if seen == 0:
            return "the script made no optimizer step; mark its steps by hand with `stepscope.record` (see its help)"
        if self._others.seen:
            return (
                "the script's own profiler left no room for another; audit its traces with `stepscope audit`"
            )
        few = f"the script made only {seen} of the {asked.warmup + asked.steps} steps needed"
        if seen < 2:
            return f"{few}; let it make more"
        steps = min(asked.steps, max(1, seen // 3))
        return f"{few}; let it make more, or pass --warmup {seen - steps} --steps {steps}"

    def _write(self) -> None:
        identity = self._identity = settings.identity(self._identity)
        clock_key = self._clock_key
        write_json(
            Path(self._config.run_dir) / RANK_FILE.format(rank=identity.rank),
            RankMetadata(
                rank=identity.rank,
                local_rank=identity.local_rank,
                world_size=identity.world_size,
                host=identity.host,
                pid=identity.pid,
                launch_id=self._config.launch_id,
                state="ended" if self._ended else "recorded" if self._trace else "running",
                written_ns=settings.wall_clock_ns(),
                steps_seen=self._clock.steps,
                device=identity.device,
                backend=identity.backend,
                trace=self._trace,
                recorded_steps=self._recorded,
                unfinished_step=self._unfinished,
                problem=self._problem,
                error=self._error,
                optimizers=[
                    Optimizer(
                        name=self._hooks.names.get(key, "by hand"), steps=count, is_clock=key == clock_key
                    )
                    for key, count in self._clock.counts.items()
                ],
                skipped_by_grad_scaler=self._skipped,
                step_times=self._times,
                ddp=self._modules.ddp,
                fsdp=self._modules.fsdp,
                versions=settings.versions(),
                environment=settings.environment(),
            ),
        )
