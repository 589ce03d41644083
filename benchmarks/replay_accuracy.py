"""How exact the replay is: against the measured step, and against the same run with its reduction really off.

Needs what `stepscope run --fabric` needs (Linux, root, iproute2), or --fabric none, and a quiet machine of two cores; takes
six minutes.

    python -m benchmarks.replay_accuracy

Steps with and without reduction alternate in each run (`replay_training.py`), so that whatever else the machine does meets
both. For each step with it, the replay says what it would have been with the gradients' transfers at zero time (METRICS
section 6); it is compared with the mean of the steps before and after it, whose reduction was off. The replay keeps every
operator as long as it was beside the transfers, so what is left is contention, which the audit states apart: it is taken out as
the operators' time less their time in those same steps. Beside it stands what `stepscope.replay.contention` tells without being
told which steps these are; with --share (see `held.py`) there is next to none of it. At 100 Mbit/s the transfers take longer
than backward and little of the processors' time. The interval is that of the runs' medians.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from benchmarks.held import remove_groups
from stepscope import intervals
from stepscope.ranks.pairing import Pairing, pair
from stepscope.replay.change import Change
from stepscope.replay.contention import contention
from stepscope.replay.graph import build
from stepscope.replay.timeline import Timeline
from stepscope.stats import bootstrap_interval, median
from stepscope.trace.classify import classify
from stepscope.trace.reader import read
from stepscope.trace.recording import Recording

_HELD, _SCRIPT = (Path(__file__).with_name(name) for name in ("held.py", "replay_training.py"))
_HEADINGS = ("steps", "with", "replayed", "off", "contention", "told", "compared")


class Step(NamedTuple):
    """A step that reduced, the mean over ranks in ms.

    again: by a replay that changes nothing; zero: by one with transfers at zero; off: the steps beside it, which did not
    reduce; lost: how much longer its operators took than in those; told: what contention it has in an audit.
    """

    reducing: float
    again: float
    zero: float
    off: float
    lost: float
    told: float

    @property
    def error(self) -> float:
        """Of the replay without transfers, as a share of the steps without reduction."""
        return self.zero / self.off - 1

    @property
    def error_apart(self) -> float:
        """The same with contention taken out."""
        return (self.zero - self.lost) / self.off - 1


@dataclass(frozen=True, slots=True)
class Run:
    """One run's steps. compared: the share of the compute beside transfers of which it is known what it takes alone."""

    steps: Sequence[Step]
    compared: float


def main() -> None:
    args = _arguments()
    print(
        "run "
        + " ".join(f"{heading:>10}" for heading in _HEADINGS)
        + "   error, and with contention taken out"
    )
    runs: list[Run] = []
    for number in range(args.runs):
        with tempfile.TemporaryDirectory() as folder:
            runs.append(_measure(_record(args, Path(folder) / "run")))
        print(_row(str(number), [runs[-1]]), flush=True)
    print(_row("all", runs))
    worst = max(abs(step.again / step.reducing - 1) for run in runs for step in run.steps)
    print(f"A replay that changes nothing is off by at most {worst:.1e} of the step.")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=8)
    parser.add_argument(
        "--steps", type=int, default=60, help="recorded steps of a run, half of them reducing"
    )
    parser.add_argument("--fabric", default="100mbit", help="as of `stepscope run`, or none")
    parser.add_argument(
        "--share", help="of a CPU for each rank's training thread, by held.py (default: not held)"
    )
    parser.add_argument("script", nargs="*", help="arguments of replay_training.py, after --")
    return parser.parse_args()


def _record(args: argparse.Namespace, out: Path) -> Path:
    fabric = [] if args.fabric == "none" else ["--fabric", args.fabric]
    command = [sys.executable, "-m", "stepscope", "run", "--nproc-per-node", "2", *fabric]
    command += ["--warmup", "6", "--steps", str(args.steps), "--stop", "--out", str(out)]
    command += [str(_HELD), args.share] if args.share else []
    command += [str(_SCRIPT), "--steps", str(args.steps + 60), *args.script]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if args.share:
        remove_groups()
    if done.returncode:
        sys.exit(done.stderr)
    return out


def _measure(run: Path) -> Run:
    """Of a recorded run, every step that reduced and has one that did not on either side."""
    recordings = [classify(read(file)) for file in sorted(run.glob("*.pt.trace.json.gz"))]
    pairing, numbers = pair(recordings), [window.number for window in recordings[0].steps.windows]
    found = [contention(recording, Timeline(recording.trace)) for recording in recordings]
    told = [one.by_step(numbers) if one else dict.fromkeys(numbers, 0.0) for one in found]
    steps = [
        _step(recordings, pairing, number, [of_rank[number] for of_rank in told])
        for number in numbers[1:-1]
        if _gradients(recordings, number) and not _gradients(recordings, number + 1)
    ]
    return Run(steps, sum(one.compared for one in found if one) / len(found))


def _step(recordings: Sequence[Recording], pairing: Pairing, number: int, told: Sequence[float]) -> Step:
    graph = build(recordings, pairing, number)
    assert graph is not None
    free = Change(transfers=dict.fromkeys(_gradients(recordings, number), 0.0))
    beside = [
        window.end - window.start
        for recording in recordings
        for window in recording.steps.windows
        if abs(window.number - number) == 1
    ]
    off_operators = [time for near in (number - 1, number + 1) for time in _operators(recordings, near)]
    return Step(
        reducing=_mean(graph.measured.values()),
        again=_mean(graph.replay().wall.values()),
        zero=_mean(graph.replay(free).wall.values()),
        off=_mean(beside),
        lost=_mean(_operators(recordings, number)) - _mean(off_operators),
        told=_mean(told),
    )


def _operators(recordings: Sequence[Recording], step: int) -> list[int]:
    """The time in operators that compute or launch a collective: by recording, in ns."""
    found = []
    for recording in recordings:
        work = recording.compute.where(recording.compute.step == step)
        events, launching = recording.trace.events, Timeline(recording.trace).communications
        launching = launching[recording.steps.of(events.start[launching]) == step]
        start = np.concatenate((work.start, events.start[launching]))
        end = np.concatenate((work.end, events.end[launching]))
        found.append(intervals.total(intervals.union(start, end)))
    return found


def _gradients(recordings: Sequence[Recording], step: int) -> list[tuple[int, int]]:
    return [
        (index, op.row)
        for index, recording in enumerate(recordings)
        for op in recording.collectives
        if op.gradient and op.step == step
    ]


def _mean(times: Iterable[float]) -> float:
    return float(np.mean(list(times))) / 1e6


def _row(name: str, runs: Sequence[Run]) -> str:
    """Medians over all steps; of several runs, the errors are medians of the runs' medians."""
    steps = [step for run in runs for step in run.steps]
    columns = ([getattr(step, one) for step in steps] for one in ("reducing", "zero", "off", "lost", "told"))
    figures = " ".join(f"{median(values):10.1f}" for values in columns)
    compared = sum(run.compared for run in runs) / len(runs)
    errors = [[getattr(step, one) for step in steps] for one in ("error", "error_apart")]
    if len(runs) > 1:
        errors = [
            [median([getattr(s, one) for s in run.steps]) for run in runs] for one in ("error", "error_apart")
        ]
    return f"{name:>3} {len(steps):>10} {figures} {compared:10.0%}   {', '.join(map(_median, errors))}"


def _median(errors: list[float]) -> str:
    """With its 95 % interval."""
    interval = bootstrap_interval(errors)
    between = f" ({interval[0]:+.1%} to {interval[1]:+.1%})" if interval else ""
    return f"{median(errors):+.1%}{between}"


if __name__ == "__main__":
    main()
