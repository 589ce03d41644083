"""How exact the replay is: against the measured step, and against the same run with its reduction really off.

Needs what `stepscope run --fabric` needs (Linux, root, iproute2), or --fabric none.

    python -m benchmarks.replay_accuracy --runs 3 --steps 40

Steps with and without reduction alternate in each run (`replay_training.py`). For the steps with it, the replay says what they
would have been with the gradients' transfers at zero time (METRICS section 6). What is left of the difference is contention,
the operators that take longer beside a transfer, measured here against the steps without; and the noise of the machine.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from pathlib import Path

import numpy as np

from stepscope import intervals
from stepscope.ranks.pairing import pair
from stepscope.replay.change import Change
from stepscope.replay.graph import StepGraph, build
from stepscope.replay.timeline import Timeline
from stepscope.stats import bootstrap_interval, median
from stepscope.trace.classify import classify
from stepscope.trace.reader import read
from stepscope.trace.recording import Recording

_SCRIPT = Path(__file__).with_name("replay_training.py")


@dataclass(frozen=True)
class Steps:
    """One run's steps, the mean over ranks of each, in ms.

    reducing: as measured; replayed: the same by a replay that changes nothing; zero: with transfers at zero; computing:
    their compute; off: the steps whose reduction was off; off_computing: the compute of those.
    """

    reducing: list[float] = field(default_factory=list)
    replayed: list[float] = field(default_factory=list)
    zero: list[float] = field(default_factory=list)
    computing: list[float] = field(default_factory=list)
    off: list[float] = field(default_factory=list)
    off_computing: list[float] = field(default_factory=list)


def main() -> None:
    args = _arguments()
    columns = ("steps", "with", "replayed", "off", "compute", "off")
    print(
        f"{'run':>3} "
        + " ".join(f"{column:>9}" for column in columns)
        + "   error, and less contention (95 % intervals)"
    )
    runs = []
    for number in range(args.runs):
        with tempfile.TemporaryDirectory() as folder:
            runs.append(_measure(_record(args, Path(folder) / "run")))
        print(_row(str(number), runs[-1]), flush=True)
    together = Steps(*([value for run in runs for value in getattr(run, one.name)] for one in fields(Steps)))
    print(_row("all", together))
    pairs = zip(together.reducing, together.replayed, strict=True)
    worst = max(abs(replayed / measured - 1) for measured, replayed in pairs)
    print(f"A replay that changes nothing is off by at most {worst:.1e} of the step.")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument(
        "--steps", type=int, default=40, help="recorded steps of a run, half of them reducing"
    )
    parser.add_argument("--fabric", default="100mbit", help="as of `stepscope run`, or none")
    parser.add_argument("script", nargs="*", help="arguments of replay_training.py, after --")
    return parser.parse_args()


def _record(args: argparse.Namespace, out: Path) -> Path:
    fabric = [] if args.fabric == "none" else ["--fabric", args.fabric]
    command = [sys.executable, "-m", "stepscope", "run", "--nproc-per-node", "2", *fabric]
    command += ["--warmup", "6", "--steps", str(args.steps), "--stop", "--out", str(out), str(_SCRIPT)]
    command += ["--steps", str(args.steps + 60), *args.script]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(done.stderr)
    return out


def _measure(run: Path) -> Steps:
    """A run's steps in pairs, one that reduced and the one after it, which did not."""
    recordings = [classify(read(file)) for file in sorted(run.glob("*.pt.trace.json.gz"))]
    pairing = pair(recordings)
    found = Steps()
    reducing: StepGraph | None = None
    for window in recordings[0].steps.windows:
        graph = build(recordings, pairing, window.number)
        assert graph is not None
        if _gradients(recordings, window.number):
            reducing = graph
        elif reducing is not None:
            _add(found, recordings, reducing, graph)
            reducing = None
    return found


def _add(found: Steps, recordings: list[Recording], reducing: StepGraph, off: StepGraph) -> None:
    free = Change(transfers=dict.fromkeys(_gradients(recordings, reducing.step), 0.0))
    found.reducing.append(_mean(reducing.measured.values()))
    found.replayed.append(_mean(reducing.replay().wall.values()))
    found.zero.append(_mean(reducing.replay(free).wall.values()))
    found.computing.append(_mean(_compute(recordings, reducing.step)))
    found.off.append(_mean(off.measured.values()))
    found.off_computing.append(_mean(_compute(recordings, off.step)))


def _gradients(recordings: list[Recording], step: int) -> list[tuple[int, int]]:
    return [
        (index, op.row)
        for index, recording in enumerate(recordings)
        for op in recording.collectives
        if op.gradient and op.step == step
    ]


def _compute(recordings: list[Recording], step: int) -> list[int]:
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


def _mean(times: Iterable[float]) -> float:
    return float(np.mean(list(times))) / 1e6


def _row(name: str, steps: Steps) -> str:
    columns = (steps.reducing, steps.zero, steps.off, steps.computing, steps.off_computing)
    figures = " ".join(f"{median(values):9.1f}" for values in columns)
    pairs = list(zip(*(getattr(steps, one.name) for one in fields(Steps)), strict=True))
    errors = [zero / off - 1 for _, _, zero, _, off, _ in pairs]
    apart = [(zero - computing + idle) / off - 1 for _, _, zero, computing, off, idle in pairs]
    return f"{name:>3} {len(errors):>9} {figures}   {_median(errors)}, {_median(apart)}"


def _median(errors: list[float]) -> str:
    """Over pairs of neighbouring steps, with its 95 % interval."""
    interval = bootstrap_interval(errors)
    between = f" ({interval[0]:+.1%} to {interval[1]:+.1%})" if interval else ""
    return f"{median(errors):+.1%}{between}"


if __name__ == "__main__":
    main()
