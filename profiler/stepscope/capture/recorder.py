"""The recorder inside each rank: waits, warms up, records a few training steps, times a few more, then gets out of the way."""

from __future__ import annotations

import enum
from collections.abc import Callable
from pathlib import Path

from stepscope.capture import settings
from stepscope.capture.clock import StepClock
from stepscope.capture.config import TIMED_AFTER, CaptureConfig
from stepscope.capture.cost import profiler_cost
from stepscope.capture.hooks import StepHooks
from stepscope.capture.metadata import RANK_FILE, Optimizer, ProfilerCost, RankMetadata, StepTime, write_json
from stepscope.capture.session import OtherProfilers, Session
from stepscope.capture.timing import StepTimer

START_UP_STEPS = 2
"""DDP rebuilds its buckets at step 1, with static_graph after it: neither of the first two is timed."""


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

    def __init__(self, config: CaptureConfig) -> None:
        self.config = config
        self.state = State.WAITING
        self.trace: str | None = None
        self.recorded: list[int] = []
        self.unfinished: int | None = None
        self.problem: str | None = None
        self.while_recording: Callable[[bool], None] = lambda _recording: None
        """Called with True when the recording begins and with False when it is over."""
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
        self.hooks = StepHooks(self.optimizer_stepped)
        self._modules = settings.ModuleWatch()
        self._identity = settings.identity(None)

    def install(self) -> None:
        """Begin to listen, and leave a first sign of life in the run directory."""
        self.hooks.install()
        self._others.install()
        self._modules.install()
        self._write()

    def optimizer_stepped(self, key: int, skipped: bool) -> None:
        """An optimizer's step has ended; where it ends a training step too, move on."""
        if self.state is State.DONE:
            return
        end = self._timer.now()
        self._clock.observe(key)
        if self._clock.key == key:
            if skipped:
                self._skipped.append(self._clock.steps - 1)
            self._step_ended(key, self._clock.steps)
        self._timer.mark(key, self._clock.counts[key] - 1, end)
        self._stop_when_measured()

    def finish(self, error: str | None = None) -> None:
        """The script is over: keep what was recorded whole, say what is missing. Calling it again changes nothing."""
        if self._ended:
            return
        self._ended, self._error = True, error
        if self.state in (State.WARMING, State.RECORDING):
            self._end_recording()
        if self.trace is None and self.problem is None:
            self.problem = self._why_nothing_was_recorded()
        self._remove()
        self._write()

    def _step_ended(self, key: int, steps: int) -> None:
        """`steps` training steps are complete; the next one has that number."""
        if self._session is not None and self._session_key != key:
            self._end_recording()  # an optimizer that steps more rarely has turned up: it is the clock
        if self._others.active:
            self._kinds[steps - 1] = "other-profiler"
        if self.state is State.WAITING:
            self._prepare(key, steps)
        elif self.state is State.WARMING:
            self._start(steps)
        elif self.state is State.RECORDING:
            self._next_recorded_step(steps)
        elif self.state is State.TIMING:
            self._timed_after += 1

    def _prepare(self, key: int, steps: int) -> None:
        if steps < self.config.warmup - 1 or self._others.active:
            return
        self._session, self._session_key = Session(with_stack=self.config.with_stack), key
        self._others.ours(self._session.prepare)
        self.state = State.WARMING
        if self.config.warmup == 1:
            self._start(steps)
        else:
            self._kinds[steps] = "profiler-warm-up"

    def _start(self, steps: int) -> None:
        assert self._session is not None
        self.while_recording(True)
        self._others.ours(self._session.start)
        self.state = State.RECORDING
        self._session.begin_step(steps)
        self._kinds[steps] = "recorded"

    def _next_recorded_step(self, steps: int) -> None:
        assert self._session is not None
        self._session.end_step()
        if len(self._session.completed) == self.config.steps:
            self._end_recording()
        else:
            self._session.begin_step(steps)
            self._kinds[steps] = "recorded"

    def _yield_to_other(self) -> None:
        """The script starts a profiler of its own: it goes first."""
        if self.state in (State.WARMING, State.RECORDING):
            self._end_recording()

    def _end_recording(self) -> None:
        """Stop the profiler; keep the trace if it holds a whole step, else wait for another chance."""
        assert self._session is not None
        session, was_recording = self._session, self.state is State.RECORDING
        self._session = None
        if was_recording:
            self._others.ours(session.stop)
            self.while_recording(False)
        if not session.completed:
            self._kinds.update(dict.fromkeys([session.unfinished] if session.unfinished else [], "discarded"))
            self.state = State.WAITING
            return
        self.recorded, self.unfinished = session.completed, session.unfinished
        self.trace = session.export(Path(self.config.run_dir), self._identity.rank)
        self._kinds[self.recorded[-1] + 1] = "after-export"
        self._modules.read()
        self.state = State.TIMING
        self._write()

    def _stop_when_measured(self) -> None:
        if self.state is State.TIMING and self._timed_after > TIMED_AFTER:
            self._remove()
            self._write()
            if self.config.stop:
                raise SystemExit(0)

    def _remove(self) -> None:
        self.state = State.DONE
        self.hooks.remove()
        self._others.remove()
        self._modules.remove()
        clock_key = self._session_key if self._session_key is not None else self._clock.key
        if clock_key is not None:
            self._times = self._timer.times(clock_key, self._kinds)

    def _why_nothing_was_recorded(self) -> str:
        steps, needed = self._clock.steps, self.config.warmup + self.config.steps
        if steps == 0:
            return "the script made no optimizer step"
        if self._others.seen:
            return "the script's own profiler was active; there was no room for a recording"
        return f"the script made only {steps} of the {needed} steps that --warmup and --steps ask for"

    def _write(self) -> None:
        identity = self._identity = settings.identity(self._identity)
        write_json(
            Path(self.config.run_dir) / RANK_FILE.format(rank=identity.rank),
            RankMetadata(
                rank=identity.rank,
                local_rank=identity.local_rank,
                world_size=identity.world_size,
                host=identity.host,
                pid=identity.pid,
                launch_id=self.config.launch_id,
                state="ended" if self._ended else "recorded" if self.trace else "running",
                steps_seen=self._clock.steps,
                device=identity.device,
                backend=identity.backend,
                trace=self.trace,
                recorded_steps=self.recorded,
                unfinished_step=self.unfinished,
                problem=self.problem,
                error=self._error,
                optimizers=self._optimizers(),
                skipped_by_grad_scaler=self._skipped,
                step_times=self._times,
                profiler_cost=self._cost(),
                ddp=self._modules.ddp,
                fsdp=self._modules.fsdp,
                versions=settings.versions(),
                environment=settings.environment(),
            ),
        )

    def _optimizers(self) -> list[Optimizer]:
        clock_key = self._session_key if self._session_key is not None else self._clock.key
        return [
            Optimizer(name=self.hooks.names[key], steps=count, is_clock=key == clock_key)
            for key, count in self._clock.counts.items()
        ]

    def _cost(self) -> ProfilerCost | None:
        def times(kind: str) -> list[float]:
            return [
                time.wall_ms if time.device_ms is None else time.device_ms
                for time in self._times
                if time.kind == kind
            ]

        return profiler_cost(times("unprofiled"), times("recorded"))
