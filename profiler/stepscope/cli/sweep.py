"""Compare bucket sizes and other knobs by measurement, on your own script and without an edit to it.

usage: stepscope sweep --bucket-cap-mb MIB,... [torchrun flags] [options] SCRIPT [args...]
       (or -m MODULE, or a WORKLOAD, as in `stepscope run`)

Every candidate is run --repeat times, in complete rounds in random order, and compared with the others of its
round. A run ends once everything is measured. Times are of steps without the profiler; overlap, exposed time
and floor are of the recorded ones of the same run. DDP's bucket cap is set from outside, whatever the script
asks for; other knobs go to its flags (--accumulate, --zero, --arg) or its environment (--env).

The directory keeps a line for each finished run, its recording and what the script printed. The same command
with the same --out goes on where it was stopped, and tries again what failed; a greater --repeat adds rounds.

exit code: 0 all candidates were measured; 1 some were not: they failed, or have no DDP whose buckets could be
set; 2 nothing could be measured, or bad input

examples:
  stepscope sweep --bucket-cap-mb script,1,8,25,100 --nproc-per-node 2 train.py --batch-size 8
  stepscope sweep --bucket-cap-mb 0.5,5,25 --fabric 600mbit --out runs/sweep gpt
"""

from __future__ import annotations

import argparse
import shutil
import signal
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from importlib.metadata import entry_points
from pathlib import Path
from statistics import fmean
from typing import TextIO

import msgspec

from stepscope.budget.measured import read_fabric
from stepscope.capture.fabric import fabric_of
from stepscope.capture.target import Target, find_target
from stepscope.capture.torchrun import gpu_count
from stepscope.cli.launching import ONE_NODE, say, settle_processes
from stepscope.cli.output import STANDARD_OUTPUT, announce, refuse_existing, write_file
from stepscope.cli.progress import Progress, progress_bar
from stepscope.cli.sweep_options import OWN_OPTIONS, parse, print_help
from stepscope.cli.sweep_runs import RUNS, Launcher, Stopped
from stepscope.errors import InputError
from stepscope.sweep.build import Made, Predicted, build
from stepscope.sweep.plan import Plan, Slot, but_for_cap, pending, runs_of, stages
from stepscope.sweep.result import Sweep
from stepscope.sweep.results import FAILED, MEASURED, NO_DDP, RESULTS_FILE, ResultsFile, RunResult

GROUP = "stepscope.sweep_reports"
SWEEP_FILE = "sweep.json"
SOME_NOT_MEASURED = 1


def execute_raw(argv: list[str]) -> int:
    """Plan, run what is missing, compare, report; `argv` is everything after `sweep`."""
    if not argv or argv[0] in ("-h", "--help"):
        print_help(__doc__ or "")
        return 0 if argv else InputError.exit_code
    args = parse(argv, __doc__ or "")
    target = find_target(args.training_script, module=args.module)
    render = find_report("terminal")
    refuse_existing((args.json,), force=args.force)
    calibration = None if args.calibration is None else read_fabric(args.calibration)
    gpus = 0 if args.fabric else gpu_count()
    processes = settle_processes(args, gpus)
    if args.fabric is None and args.nnodes not in ONE_NODE:
        raise InputError(
            f"--nnodes {args.nnodes}: a sweep starts all ranks on this machine; give --fabric to emulate nodes, or record "
            "each size with `stepscope run` on the nodes"
        )
    plan = _plan(args, target)
    folder = Path(args.out or f"stepscope-sweep-{datetime.now(UTC):%Y%m%dT%H%M%SZ}")
    file, results = _open(folder, plan, force=args.force)
    with fabric_of(args) as fabric:
        launcher = Launcher(
            args=args, argv=argv, target=target, folder=folder, processes=processes, gpus=gpus, fabric=fabric
        )
        stopped = _Runs(plan, args.repeat, file, results).make(launcher)
    made = Made(
        plan=plan,
        repeat=args.repeat,
        results=results,
        command=["stepscope", "sweep", *argv],
        folder=str(folder),
        fabric=args.fabric,
        stopped=stopped,
        calibration=calibration,
        predictions=_predictions(folder, plan, results),
    )
    return _deliver(build(made), folder, args.json, render)


def _plan(args: argparse.Namespace, target: Target) -> Plan:
    from stepscope.capture.torchrun import torchrun_parser

    theirs = vars(torchrun_parser().parse_args([args.training_script]))
    return Plan(
        script=target.name,
        arguments=args.training_script_args,
        launcher=[
            *(
                f"--{name.replace('_', '-')}={getattr(args, name)}"
                for name, usual in theirs.items()
                if name not in (*OWN_OPTIONS, "training_script", "training_script_args")
                and getattr(args, name) != usual
            ),
            *([] if args.fabric is None else [f"--fabric={args.fabric}"]),
        ],
        knobs=args.knobs,
        flags=args.flags,
        warmup=args.warmup,
        steps=args.steps,
        seed=args.seed,
        halving=args.halving,
    )


def _open(folder: Path, plan: Plan, *, force: bool) -> tuple[ResultsFile, list[RunResult]]:
    """The sweep's file with what it holds, in a directory that is new, empty, or the same sweep's."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        there = {path.name for path in folder.iterdir()}
    except OSError as error:
        raise InputError(
            f"cannot use {folder} as the sweep's directory: {error.strerror}; name another with --out"
        ) from error
    if force:
        (folder / RESULTS_FILE).unlink(missing_ok=True)
        shutil.rmtree(folder / RUNS, ignore_errors=True)
    elif there and RESULTS_FILE not in there:
        raise InputError(f"{folder} is not empty and holds no sweep; name another with --out")
    file = ResultsFile(folder)
    return file, file.open(plan)


class _Runs:
    """Makes the runs that are missing, one after the other, and tells how far it is."""

    def __init__(self, plan: Plan, repeat: int, file: ResultsFile, results: list[RunResult]) -> None:
        self._plan = plan
        self._repeat = repeat
        self._file = file
        self._results = results
        self._candidates = plan.candidates
        self._given_up = {number for one in results if one.status == NO_DDP for number in self._alike(one)}
        """Those that need no further run. What failed before this command gets another try in it."""

    def make(self, launcher: Launcher) -> str | None:
        """Run all of them; returns the name of the signal that stopped it, if one did."""
        self._announce()
        with progress_bar("sweep") as progress:
            while True:
                slots, later = self._pending()
                if not slots:
                    return None
                self._tell(progress, slots[0], len(slots) + later)
                try:
                    result = launcher.measure(slots[0], self._candidates[slots[0].candidate])
                except Stopped as signal_came:
                    return signal_came.name
                self._results.append(result)
                self._file.append(result)
                if result.status == FAILED:
                    self._given_up.add(slots[0].candidate)
                elif result.status == NO_DDP:
                    self._given_up.update(self._alike(result))
                if progress is None:
                    self._log(result)

    def _alike(self, result: RunResult) -> list[int]:
        """The candidates that differ from a run in the bucket cap at most."""
        return [
            number
            for number, knobs in enumerate(self._candidates)
            if but_for_cap(knobs) == but_for_cap(result.knobs)
        ]

    def _pending(self) -> tuple[list[Slot], int]:
        times = {
            Slot(one.round, self._candidates.index(one.knobs)): one.time_ms
            for one in self._results
            if one.status != FAILED
        }
        return pending(self._plan, self._repeat, times, self._given_up)

    def _announce(self) -> None:
        """How many runs there are and how long they take, as far as that is known."""
        count, repeat = len(self._candidates), self._repeat
        planned = runs_of(stages(count, repeat, halving=self._plan.halving))
        slots, later = self._pending()
        halving = f", {planned} by successive halving" if self._plan.halving else ""
        done = f"; {len(self._results)} are there" if self._results else ""
        runs = f"{count} candidates x {repeat} rounds = {count * repeat} runs{halving}"
        say(f"{runs}, in random order (seed {self._plan.seed}){done}")
        left = self._time_left(len(slots) + later)
        if slots:
            say(f"{left} to go" if left else "how long they take is known after the first one")

    def _time_left(self, runs: int) -> str:
        """By the runs that are there; empty without one."""
        seconds = [one.seconds for one in self._results]
        return f"about {_duration(runs * fmean(seconds))}" if seconds else ""

    def _tell(self, progress: Progress | None, slot: Slot, left: int) -> None:
        if progress is None:
            return
        time = self._time_left(left)
        what = f"round {slot.round + 1}, {_named(self._candidates[slot.candidate])}"
        done = len(self._results)
        progress(done, done + left, f"{what}, {time} left" if time else what)

    def _log(self, result: RunResult) -> None:
        slots, later = self._pending()
        left = len(slots) + later
        said = f"{result.time_ms:,.1f} ms a step" if result.status == MEASURED else result.message
        rest = f"; {self._time_left(left)} left" if left else ""
        say(
            f"run {len(self._results)} of {len(self._results) + left}, round {result.round + 1}, "
            f"{_named(result.knobs)}: {said}{rest}"
        )


def _named(knobs: dict[str, str]) -> str:
    return " ".join(f"{name}={value}" for name, value in knobs.items())


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{max(round(seconds), 1)} s"
    return f"{round(seconds / 60)} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def _predictions(folder: Path, plan: Plan, results: list[RunResult]) -> dict[int, Predicted]:
    from stepscope.cli.sweep_predictions import predictions

    with progress_bar("predicting"):
        return predictions(folder, plan.candidates, results)


def _deliver(made: Sweep, folder: Path, json: str | None, render: Callable[[Sweep, TextIO], None]) -> int:
    def as_json(stream: TextIO) -> None:
        stream.write(msgspec.json.format(msgspec.json.encode(made), indent=1).decode() + "\n")

    kept = folder / SWEEP_FILE
    write_file(kept, as_json)
    if json is not None:
        write_file(json, as_json)
    if json != STANDARD_OUTPUT:
        render(made, sys.stdout)
    announce([path for path in (json, kept) if path], stdout_holds_data=json == STANDARD_OUTPUT)
    if made.stopped is not None:
        say(f"stopped by {made.stopped} after {made.runs} runs; the same command with --out {folder} goes on")
        return 128 + signal.Signals[made.stopped]
    if made.best is None:
        raise InputError(made.explanation)
    return 0 if all(row.status == MEASURED for row in made.rows) else SOME_NOT_MEASURED


def find_report(name: str) -> Callable[[Sweep, TextIO], None]:
    """The sweep report of that name among the installed ones; raises InputError where there is none."""
    found = entry_points(group=GROUP)
    if name not in found.names:
        raise InputError(f"no sweep report {name!r} is installed; reinstall stepscope")
    render: Callable[[Sweep, TextIO], None] = found[name].load()
    return render
