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
from pathlib import Path
from typing import TextIO

import msgspec

from stepscope.budget.measured import Calibration, read_fabric
from stepscope.capture.fabric import fabric_of
from stepscope.capture.target import Target, find_target
from stepscope.capture.torchrun import gpu_count
from stepscope.cli.launching import ONE_NODE, say, settle_processes
from stepscope.cli.output import STANDARD_OUTPUT, announce, refuse_existing, write_file
from stepscope.cli.plain_reports import find_report
from stepscope.cli.progress import progress_bar
from stepscope.cli.sweep_loop import Runs
from stepscope.cli.sweep_options import OWN_OPTIONS, parse, print_help
from stepscope.cli.sweep_runs import RUNS, Launcher
from stepscope.errors import InputError
from stepscope.names import as_text
from stepscope.sweep.build import Made, Predicted, build
from stepscope.sweep.plan import Plan
from stepscope.sweep.result import Sweep
from stepscope.sweep.results import MEASURED, RESULTS_FILE, ResultsFile, RunResult

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
    render = find_report(GROUP, "terminal")
    refuse_existing((args.json,), force=args.force)
    calibration = None if args.calibration is None else read_fabric(args.calibration)
    folder = Path(args.out or f"stepscope-sweep-{datetime.now(UTC):%Y%m%dT%H%M%SZ}")
    _refuse_file(folder)
    gpus = 0 if args.fabric else gpu_count()
    processes = settle_processes(args, gpus)
    if args.fabric is None and args.nnodes not in ONE_NODE:
        raise InputError(
            f"--nnodes {args.nnodes}: a sweep starts all ranks on this machine; give --fabric to emulate nodes, or record "
            "each size with `stepscope run` on the nodes"
        )
    plan = _plan(args, target)
    with fabric_of(args) as fabric:
        file, results = _open(folder, plan, force=args.force)
        launcher = Launcher(
            args=args, argv=argv, target=target, folder=folder, processes=processes, gpus=gpus, fabric=fabric
        )
        stopped = Runs(plan, args.repeat, file, results).make(launcher.measure)
    made = Made(
        plan=plan,
        repeat=args.repeat,
        results=results,
        command=["stepscope", "sweep", *map(as_text, argv)],
        folder=as_text(folder),
        fabric=args.fabric,
        stopped=stopped,
        calibration=calibration,
        predictions=_predictions(folder, plan, results, calibration),
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


def _refuse_file(folder: Path) -> None:
    if folder.exists() and not folder.is_dir():
        raise InputError(f"{folder} is a file; name a directory for the sweep with --out")


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


def _predictions(
    folder: Path, plan: Plan, results: list[RunResult], calibration: Calibration | None
) -> dict[int, Predicted]:
    from stepscope.cli.sweep_predictions import predictions

    with progress_bar("predicting"):
        return predictions(folder, plan.candidates, results, calibration)


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
