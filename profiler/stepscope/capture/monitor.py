"""Overlap as a metric of training: every so many steps one is recorded, audited in place and thrown away."""

from __future__ import annotations

import atexit
import enum
import os
import shutil
import tempfile
import time
from pathlib import Path
from typing import Any, ClassVar

from stepscope.capture import settings
from stepscope.capture.clock import StepClock
from stepscope.capture.config import LEAST_EVERY
from stepscope.capture.forks import off_in_forked_children
from stepscope.capture.helper import Helper
from stepscope.capture.hooks import StepHooks
from stepscope.capture.meeting import PATIENCE_SECONDS, Absent, Meeting, job_store
from stepscope.capture.monitor_cost import Kind, MonitorCost
from stepscope.capture.monitor_log import Entry, MonitorLog, Writer, cost_of
from stepscope.capture.monitor_round import Place, Round
from stepscope.capture.notice import warn
from stepscope.capture.recorder import BY_HAND, START_UP_STEPS, Recorder
from stepscope.capture.session import OtherProfilers, Session
from stepscope.errors import InputError

DEFAULT_EVERY = 100
DEFAULT_OUT = "stepscope-monitor"
MOST_KEPT = 20
"""Verdicts near a threshold change often; training may last for weeks."""


class _State(enum.Enum):
    WAITING = "waiting"
    WARMING = "warming"
    RECORDING = "recording"
    OFF = "off"


class Monitor:
    """Records step `every`, `2 * every` and so on of this rank; what it finds is told on rank 0.

    A training step is an optimizer step, unless `step` is called. Nothing that goes wrong here reaches the script: it is a line
    on standard error, and training goes on.
    """

    running: ClassVar[Monitor | None] = None
    """The one that is installed: a process has one profiler."""
    made: ClassVar[int] = 0
    """How many there have been: what one that failed left in the store is not taken for the next one's."""

    def __init__(
        self, every: int, out: Path, writer: Writer | None = None, scratch: Path | None = None
    ) -> None:
        self._every, self._out, self._scratch = every, out, scratch
        self._state = _State.OFF
        self._kind = Kind.QUIET
        self._clock, self._cost = StepClock(), MonitorCost()
        self._log = MonitorLog(out, writer)
        self._hooks = StepHooks(self.optimizer_stepped)
        self._others = OtherProfilers(self._yield_to_other)
        self._helper = Helper()
        self._place: Place | None = None
        self._store: Any = None
        self._session: Session | None = None
        self._without = ""
        """Why there is no session where there ought to be one."""
        self._round: Round | None = None
        self._told = self._kept = 0
        self._verdict: str | None = None

    def install(self) -> None:
        """Begin to count steps."""
        Monitor.running = self
        Monitor.made += 1
        off_in_forked_children(self)
        self._state = _State.WAITING
        self._hooks.install()
        self._others.install()
        atexit.register(self.close)

    def step(self) -> None:
        """Say that a training step has ended; from the first call on, optimizers are not watched any more."""
        if self._state is _State.OFF:
            return
        if BY_HAND not in self._clock.counts:
            self._hooks.remove()
            self._clock = StepClock()
        self.optimizer_stepped(BY_HAND, False)

    def optimizer_stepped(self, key: int, skipped: bool) -> None:
        """An optimizer's step has ended; where it ends a training step too, move on."""
        self._clock.observe(key)
        if self._state is _State.OFF or self._clock.key != key:
            return
        try:
            self._step_ended(self._clock.steps)
        except (Absent, OSError, RuntimeError) as error:  # torch's profiler raises the last
            self._give_up(" ".join(str(error).split()))

    def close(self, *, wait: bool = True) -> None:
        """Monitoring is over: tell what is still to tell, and what it cost. Calling it again changes nothing.

        wait: for the audit of the last recorded step, which all ranks must come to.
        """
        if Monitor.running is not self:
            return
        Monitor.running = None
        if self._round is not None:
            self._round.join(2 * PATIENCE_SECONDS if wait else 0.0)
            self._told_of_the_round()
        steps = self._clock.steps
        self._turn_off()
        if self._is_first_rank:
            self._say_how_it_went(steps)

    def turn_off(self) -> None:
        """This is a forked child: the helper, the scratch folder and what was recorded are its parent's."""
        if Monitor.running is self:
            Monitor.running = None
        self._state = _State.OFF
        self._hooks.remove()
        self._others.remove()
        atexit.unregister(self.close)

    def __enter__(self) -> Monitor:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_rest: object) -> None:
        self.close(wait=kind is None)

    @property
    def _is_first_rank(self) -> bool:
        return (self._place.rank if self._place else int(os.environ.get("RANK", "0"))) == 0

    def _step_ended(self, steps: int) -> None:
        """`steps` training steps are complete; the next one has that number."""
        if steps > START_UP_STEPS:
            self._cost.step_ended(self._kind, time.perf_counter_ns())
        self._kind = Kind.BESIDE if self._round is not None and self._round.is_alive() else Kind.QUIET
        self._told_of_the_round()
        if self._state is _State.WARMING:
            self._start(steps)
        elif self._state is _State.RECORDING:
            self._finish(steps - 1)
        elif self._state is _State.WAITING and (steps + 1) % self._every == 0:
            self._prepare()

    def _prepare(self) -> None:
        if self._round is not None:  # its work must not fall into the step that is recorded next
            self._round.join(2 * PATIENCE_SECONDS)
            self._told_of_the_round()
            if self._state is _State.OFF:
                return
        if self._place is None:
            self._settle()
        self._state, self._kind = _State.WARMING, Kind.TOUCHED
        if self._others.active:
            self._without = "the script's own profiler is active"
            return
        self._session = Session(with_stack=False)
        with self._others.ours():
            self._session.prepare()

    def _settle(self) -> None:
        """What can be known only once the script has set itself up."""
        identity = settings.identity(None)
        scratch = Path(tempfile.mkdtemp(prefix="stepscope-monitor-", dir=self._scratch))
        self._place = Place(identity.rank, identity.world_size, scratch, self._out.resolve())
        if identity.world_size > 1:
            self._store = job_store()

    def _start(self, steps: int) -> None:
        self._state, self._kind = _State.RECORDING, Kind.TOUCHED
        if self._session is not None:
            with self._others.ours():
                self._session.start()
                self._session.begin_step(steps)

    def _finish(self, step: int) -> None:
        """The recorded step is over: its trace goes to a thread, whatever became of it, for the other ranks wait for it."""
        self._state, self._kind = _State.WAITING, Kind.TOUCHED
        place = self._place
        assert place is not None
        trace = self._written(place.scratch / f"rank{place.rank}.{step}.json")
        meeting = Meeting(self._store, f"monitor{Monitor.made}/{step}", place.rank, place.size)
        self._round = Round(
            meeting,
            self._helper,
            place,
            step,
            trace,
            self._verdict,
            room=self._kept < MOST_KEPT,
            at_last=self._log.open,
        )
        self._round.start()

    def _written(self, file: Path) -> Path | str:
        """The trace; or why there is none."""
        session, self._session = self._session, None
        if session is None:
            return self._without
        session.end_step()
        with self._others.ours():
            session.stop()
        try:
            session.write(file)
        except OSError as error:
            return f"its trace cannot be written ({error.strerror})"
        return file

    def _yield_to_other(self) -> None:
        """The script starts a profiler of its own: it goes first."""
        session, self._session = self._session, None
        if session is None:
            return
        self._without = "the script started a profiler of its own"
        with self._others.ours():
            if self._state is _State.WARMING:  # there is no other way to end a profiler that is only prepared
                session.start()
            session.stop()

    def _told_of_the_round(self) -> None:
        """Tell what the last round found, once it is over."""
        if self._round is None or self._round.is_alive():
            return
        outcome, self._round = self._round.outcome, None
        if outcome.apart:
            self._give_up(str(outcome.problem))
        elif self._place is not None and self._place.rank == 0:
            cost = cost_of(self._cost.taken())
            self._told += 1
            self._kept += outcome.kept
            self._verdict = outcome.figures.verdict if outcome.figures else self._verdict
            entry = Entry(
                step=outcome.step,
                figures=outcome.figures,
                problem=outcome.problem,
                kept=str(self._place.kept(outcome.step)) if outcome.kept else None,
                ranks=self._place.size,
                moved_bytes=outcome.moved_bytes,
                trace_bytes=outcome.trace_bytes,
                **cost,
            )
            self._log.tell(entry)

    def _give_up(self, why: str) -> None:
        if self._is_first_rank:
            warn(f"monitoring ends at step {self._clock.steps}: {why}")
        self._turn_off()

    def _turn_off(self) -> None:
        """Leave torch and this machine as they were found."""
        if self._state is _State.OFF:
            return
        if self._session is not None:
            self._yield_to_other()
        self._state = _State.OFF
        self._hooks.remove()
        self._others.remove()
        self._helper.end()
        if self._place is not None:
            shutil.rmtree(self._place.scratch, ignore_errors=True)
        atexit.unregister(self.close)

    def _say_how_it_went(self, steps: int) -> None:
        if self._told:
            count = "1 step" if self._told == 1 else f"{self._told} steps"
            warn(f"monitored {count} of {steps}: {self._cost.in_words(self._told)}")
        elif steps <= self._every:
            warn(f"nothing was monitored: the script made {steps} steps, and step {self._every} is the first")


class MonitoredRun:
    """The monitor of a script that is run as it is."""

    def __init__(self, every: int, out: Path, scratch: Path) -> None:
        """scratch: a folder that the launcher takes away, for a rank that is killed can't."""
        self._monitor = Monitor(every, out, scratch=scratch)
        self._monitor.install()

    def finish(self, error: str | None) -> None:
        """The script is over; after an error nobody waits for the other ranks."""
        self._monitor.close(wait=error is None)


def monitor(
    every: int = DEFAULT_EVERY,
    *,
    out: str | os.PathLike[str] = DEFAULT_OUT,
    writer: Writer | None = None,
    enabled: bool = True,
) -> Monitor:
    """Monitor the training of this process from now on: one step of every `every` is recorded, audited and thrown away.

    Every rank calls it, before or after it joins its process group, under torchrun or any other launcher. Rank 0 says a line a
    recorded step, and writes `monitor.jsonl` into `out`, scalars for TensorBoard to `writer` (without one to `out`, where
    TensorBoard is installed) and to the Weights & Biases run that is active. Where the verdict is another one than before, the
    step's traces are kept in `out`. It ends with the process, or where `close` is called or its `with` block ends.

    With `enabled=False`, and inside `stepscope run`, which has the profiler already, it does nothing. Raises InputError for an
    `every` below 4.
    """
    if every < LEAST_EVERY:
        raise InputError(f"cannot monitor every {every} steps; {LEAST_EVERY} is the least")
    if Monitor.running is not None:
        return Monitor.running
    made = Monitor(every, Path(out), writer)
    if enabled and Recorder.running is None:
        made.install()
    return made
