"""Record a training script under torchrun, without an edit to it, and audit it.

usage: stepscope run [torchrun flags] [options] SCRIPT [args...]
       stepscope run [torchrun flags] [options] -m MODULE [args...]
       stepscope run [torchrun flags] [options] WORKLOAD [args...]

All torchrun flags pass through, those for several nodes too: see `torchrun --help`. Without --nproc-per-node
there is one process for each GPU, else two on the CPU. A training step is an optimizer step. The script runs
to its own end, as it does unrecorded; with --stop it ends once everything is measured. What stands behind the
script is the script's: `stepscope run gpt --help` prints the workload's own options, and records nothing.

With --gather no trace leaves its node and no storage is shared: see docs/monitor.md. With --monitor N the
whole training is watched instead: one step of every N is recorded, audited and thrown away.

examples:
  stepscope run --nproc-per-node 2 --steps 5 train.py --batch-size 8
  stepscope run --nproc-per-node 2 --monitor 100 train.py
"""

from __future__ import annotations

import argparse
import os
import signal
import uuid
from collections.abc import Callable
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NoReturn

from stepscope.capture.config import DEFAULT_STEPS, DEFAULT_WARMUP, CaptureConfig
from stepscope.capture.fabric import add_option, fabric_of
from stepscope.capture.launch import LaunchStatus, launch, rank_environment
from stepscope.capture.merge import Command, merge, rank_files
from stepscope.capture.metadata import RunMetadata
from stepscope.capture.outcome import what_failed, what_is_kept, what_is_missing, what_was_gathered
from stepscope.capture.rundir import default_name, make_run_dir, trace_folder
from stepscope.capture.target import Target, find_target
from stepscope.capture.torchrun import gpu_count, torchrun_parser
from stepscope.cli.arguments import Parser, add_output_options, options_given, suggesting
from stepscope.cli.audit import audit_paths
from stepscope.cli.gate import GATE_OPTIONS, Gate, add_gate_options
from stepscope.cli.launching import ONE_NODE, at_least_one, refuse_no_python, say, settle_processes
from stepscope.cli.monitoring import add_monitor_option, conclude_monitored, refuse_beside_monitor
from stepscope.cli.output import STANDARD_OUTPUT, refuse_existing, refuse_same
from stepscope.cli.progress import progress_bar
from stepscope.cli.reports import deliver, find_report, suggest_page
from stepscope.cli.scripts_help import asks_for_help, print_help_of
from stepscope.cli.stored import AUDIT_FILE
from stepscope.errors import InputError

OWN_OPTIONS = (
    *("out", "warmup", "steps", "with_stack", "noise_scale", "stop", "monitor", "gather", "keep_traces"),
    "fabric",
    *(*GATE_OPTIONS, "json", "force"),
)
STANDARD_ERROR = 2


def execute_raw(argv: list[str]) -> int:
    """Record, audit, report; `argv` is everything after `run`."""
    if not argv or argv[0] in ("-h", "--help"):
        _print_help()
        return 0 if argv else InputError.exit_code
    started = datetime.now(UTC)
    args = _parse(argv)
    gate = Gate.of(args)
    target = find_target(args.training_script, module=args.module)
    if asks_for_help(args.training_script_args):
        return print_help_of(target, args.training_script_args)
    gpus = 0 if args.fabric else gpu_count()
    processes = settle_processes(args, gpus)
    run_dir = Path(args.out or default_name(started))
    refuse_existing((args.json,), force=args.force)
    refuse_same((args.json, run_dir))
    with ExitStack() as stack:
        fabric = stack.enter_context(fabric_of(args))
        make_run_dir(
            run_dir, started, force=args.force, shared=fabric is None and args.nnodes not in ONE_NODE
        )
        apart = args.gather or args.monitor is not None
        traces = stack.enter_context(trace_folder(run_dir, apart=apart))
        command = Command(
            arguments=["stepscope", "run", *argv],
            script=target.name,
            started=started,
            config=_config(args, run_dir, traces, target),
            known_environment=frozenset(os.environ),
        )
        outcome = launch(
            _torchrun_arguments(args, target.name),
            command.config,
            rank_environment(os.environ, processes, gpus),
            _progress(run_dir, stop=args.stop),
            fabric,
            stdout=STANDARD_ERROR if args.json == STANDARD_OUTPUT else None,
        )
    if args.monitor is not None:
        return conclude_monitored(outcome, run_dir)
    run = _merged(run_dir, command, outcome)
    code = _conclude(run, outcome, run_dir, args.json, gate)
    if run is None and code == 0 and args.nnodes in ONE_NODE:
        raise InputError(f"no rank could write into {run_dir}, so nothing is recorded; the script has run")
    if run is None and code == 0:
        say(f"the node of rank 0 writes the results into {run_dir}")
    return code


def _merged(run_dir: Path, command: Command, outcome: LaunchStatus) -> RunMetadata | None:
    try:
        return merge(run_dir, command, {failure.rank: failure.exit_code for failure in outcome.failures})
    except OSError as error:
        raise InputError(f"cannot write into {run_dir}: {error.strerror}; the script has run") from error


def _parse(argv: list[str]) -> argparse.Namespace:
    """torchrun's arguments and ours in one namespace; `nproc_per_node` is None where nothing says it."""
    parser = torchrun_parser()
    parser.prog = "stepscope run"
    parser.error = lambda message: _refuse(suggesting(parser, message))  # type: ignore[method-assign]
    parser.print_help = lambda file=None: _print_help()  # type: ignore[method-assign]
    _add_options(parser)
    args = parser.parse_args(argv)
    refuse_no_python(args)
    if args.monitor is not None:
        refuse_beside_monitor(options_given(parser, argv, OWN_OPTIONS))
    if args.keep_traces and not args.gather:
        raise InputError("--keep-traces goes with --gather; without it the traces are kept in any case")
    return args


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--out", metavar="DIR", help="run directory (default: stepscope-run-<UTC time>)")
    parser.add_argument(
        "--warmup",
        type=at_least_one,
        default=DEFAULT_WARMUP,
        metavar="N",
        help="steps before the recorded ones: for bucket rebuilds, for timing without the profiler, and the last "
        f"of them to warm the profiler up (default: {DEFAULT_WARMUP})",
    )
    parser.add_argument(
        "--steps",
        type=at_least_one,
        default=DEFAULT_STEPS,
        metavar="N",
        help=f"steps to record (default: {DEFAULT_STEPS})",
    )
    parser.add_argument(
        "--with-stack", action="store_true", help="record Python stacks too; slows the recorded steps"
    )
    parser.add_argument(
        "--noise-scale",
        action="store_true",
        help="measure the gradient noise scale too, in 30 steps after the others, for `stepscope predict --world-size`",
    )
    parser.add_argument("--stop", action="store_true", help="end the script once everything is measured")
    add_monitor_option(parser)
    parser.add_argument(
        "--gather",
        action="store_true",
        help="each rank reduces its trace in place, on local storage, to what the audit reads; rank 0 collects that "
        "through the job's own store, so that no storage has to be shared",
    )
    parser.add_argument(
        "--keep-traces",
        action="store_true",
        help="with --gather: keep the traces too, each in the folder traces of its node's run directory",
    )
    add_option(parser)
    add_gate_options(parser)
    add_output_options(parser)


def _torchrun_arguments(args: argparse.Namespace, script: str) -> dict[str, Any]:
    ours = {**vars(args), "training_script": script}
    return {name: value for name, value in ours.items() if name not in OWN_OPTIONS}


def _config(args: argparse.Namespace, run_dir: Path, traces: Path, target: Target) -> CaptureConfig:
    return CaptureConfig(
        run_dir=str(run_dir.resolve()),
        warmup=args.warmup,
        steps=args.steps,
        with_stack=args.with_stack,
        noise_scale=args.noise_scale,
        stop=args.stop,
        monitor_every=args.monitor,
        gather=args.gather,
        keep_traces=args.keep_traces,
        trace_folder=str(traces.resolve()),
        launch_id=uuid.uuid4().hex,
        module=target.module,
    )


def _progress(run_dir: Path, *, stop: bool) -> Callable[[], None]:
    """Says once that the recording is over, for the script may run on for long."""
    told = False

    def look() -> None:
        nonlocal told
        if told:
            return
        ranks = rank_files(run_dir)
        if ranks and ranks[0].state == "recorded":
            told = True
            steps = ", ".join(map(str, ranks[0].recorded_steps))
            say(f"steps {steps} are recorded; the script {'is ended' if stop else 'runs on to its own end'}")

    return look


def _conclude(
    run: RunMetadata | None, outcome: LaunchStatus, run_dir: Path, json: str | None, gate: Gate
) -> int:
    """Audit what there is, say what went wrong, if anything did, and hold the audit against the gates."""
    traced = run is not None and any(rank.trace for rank in run.ranks)
    missing, failed = what_is_missing(run), what_failed(outcome, run, run_dir)
    if traced:
        if missing is not None:
            say(missing)
        if gathered := what_was_gathered(run, run_dir):
            say(gathered)
        with progress_bar("auditing") as progress:
            made = audit_paths([str(run_dir)], progress=progress)
        deliver(made, find_report("terminal"), json=json, kept=run_dir / AUDIT_FILE)
        suggest_page(run_dir)
    elif not any(run_dir.iterdir()):
        run_dir.rmdir()
    if failed is not None:
        raise InputError(failed)
    if outcome.kind == "signal":
        say(f"stopped by {outcome.message}; {what_is_kept(run, run_dir)}")
        return 128 + signal.Signals[outcome.message]
    if run is not None and not traced:
        raise InputError(missing or "no step was recorded")
    if traced:
        gate.hold(made)
    return 0


def _print_help() -> None:
    options = Parser(prog="stepscope run", usage=argparse.SUPPRESS, add_help=False)
    _add_options(options)
    print(__doc__.strip(), options.format_help().strip(), sep="\n\n")


def _refuse(message: str) -> NoReturn:
    if "training_script" in message:
        message = "nothing to record: name a SCRIPT, -m MODULE or a WORKLOAD"
    raise InputError(f"{message} (see `stepscope run --help`)")
