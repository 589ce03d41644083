"""Measure alpha and bandwidth of the process group it is launched in.

usage: stepscope calibrate [torchrun flags] [options]

Times collectives from --min-bytes to --max-bytes on the ranks that torchrun's flags say, many nodes too, and
fits time = hops alpha + volume S/B to each. Columns are those of nccl-tests: size of the whole array, time of
the slowest rank (median), algbw = S/time, busbw = algbw times what passes a rank's link. GB is 1e9 bytes.
NCCL or RCCL where there are GPUs, else gloo; without --nproc-per-node one rank for each GPU, else two.

With --fabric the ranks run on an emulated network: that of a rank's link alone, or of nodes (--nnodes) that
are fast inside and slow between. All of it runs on this machine and needs Linux, root and iproute2.

fabric.json holds it all, for other commands to read on this machine.

examples:
  stepscope calibrate --nproc-per-node 4 --fabric 1gbit --max-bytes 32M
  stepscope calibrate --nnodes 2 --nproc-per-node 8 --rdzv-endpoint node0:29400 --rdzv-backend c10d
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import tempfile
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NoReturn, TextIO

import msgspec

from stepscope.budget.measured import Calibration
from stepscope.capture.calibrate import COLLECTIVES, Measurement, Plan, measure
from stepscope.capture.fabric import add_option, fabric_of
from stepscope.capture.launch import LaunchStatus, rank_environment
from stepscope.capture.outcome import launch_error
from stepscope.capture.place import Fabric
from stepscope.capture.target import CPU_PROCESSES
from stepscope.capture.torchrun import gpu_count, torchrun_parser
from stepscope.cli.arguments import Parser, add_output_options, suggesting
from stepscope.cli.launching import processes_of
from stepscope.cli.output import STANDARD_OUTPUT, announce, refuse_existing, write_file
from stepscope.cli.plain_reports import find_report
from stepscope.cli.progress import progress_bar
from stepscope.errors import InputError

GROUP = "stepscope.calibration_reports"
SCRIPT = "calibrate"
"""Stands where torchrun wants a script."""

SMALLEST, LARGEST = 4, 1 << 34
MOST_SIZES = 64
_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}
OWN_OPTIONS = (
    "out",
    "min_bytes",
    "max_bytes",
    "step_factor",
    "collectives",
    "repeats",
    "warmup",
    "seconds_per_size",
    "backend",
    "fabric",
    "json",
    "force",
)


def execute_raw(argv: list[str]) -> int:
    """Measure, fit, report; `argv` is everything after `calibrate`."""
    if argv[:1] in (["-h"], ["--help"]):
        _print_help()
        return 0
    args = _parse(argv)
    gpus = 0 if args.fabric else gpu_count()
    if args.nproc_per_node is None:
        args.nproc_per_node = str(gpus or CPU_PROCESSES)
    processes = processes_of(args)
    if processes == 1 and args.nnodes in ("1", "1:1"):
        raise InputError(
            "one rank sends nothing, so there is nothing to measure; start two or more with --nproc-per-node"
        )
    refuse_existing((args.out, args.json), force=args.force)
    with fabric_of(args) as fabric:
        made = _measure(args, rank_environment(os.environ, processes, gpus), fabric)
        emulated = None if fabric is None else dict(fabric.description)
    if made is None:
        print("stepscope: the node of rank 0 writes the result", file=sys.stderr)
        return 0
    return _deliver(_calibration(made, emulated, ["stepscope", "calibrate", *argv]), args)


def _measure(
    args: argparse.Namespace, environment: dict[str, str], fabric: Fabric | None
) -> Measurement | None:
    with tempfile.TemporaryDirectory(prefix="stepscope-") as scratch, progress_bar("measuring") as progress:
        plan = Plan(
            output=str(Path(scratch, "measurement.json")),
            backend=args.backend or "",
            collectives=args.collectives,
            sizes=sizes(args.min_bytes, args.max_bytes, args.step_factor),
            repeats=args.repeats,
            warmup=args.warmup,
            seconds_per_size=args.seconds_per_size,
        )
        made, status = measure(_torchrun_arguments(args), plan, environment, progress, fabric)
    _check(status)
    if made is not None and not made.done:
        raise InputError("the ranks ended before everything was measured; see what they printed above")
    return made


def _check(status: LaunchStatus) -> None:
    if status.kind == "error":
        raise InputError(launch_error(status.message))
    if status.kind == "signal":
        raise SystemExit(128 + signal.Signals[status.message])
    if status.failures:
        first = status.failures[0]
        raise InputError(
            f"rank {first.rank} failed with exit code {first.exit_code} and nothing was written; see its message above"
        )


def _calibration(made: Measurement, emulated: dict[str, Any] | None, command: list[str]) -> Calibration:
    from stepscope.budget.calibration import Sample, calibrate, summary

    names = dict.fromkeys(row.collective for row in made.rows)
    rows = {name: [row for row in made.rows if row.collective == name] for name in names}
    collectives = [
        calibrate(
            name,
            made.world_size,
            [Sample(name, row.bytes, row.operations, row.seconds) for row in rows[name]],
            made.left_out.get(name),
        )
        for name in names
    ]
    return Calibration(
        date=datetime.now(UTC).isoformat(timespec="seconds"),
        hosts=made.hosts,
        world_size=made.world_size,
        backend=made.backend,
        device=made.device,
        transport=_transport(made, emulated),
        emulated=emulated,
        collectives=collectives,
        command=command,
        versions=made.versions,
        environment=made.environment,
        **summary(collectives),
    )


def _transport(made: Measurement, emulated: dict[str, Any] | None) -> str:
    where = "within one host" if len(made.hosts) == 1 else f"between {len(made.hosts)} hosts"
    if emulated is not None:
        where = "on an emulated fabric"
    over = "TCP" if made.backend == "gloo" else f"chosen by {made.backend}"
    interface = "" if made.interface is None else f", interface {made.interface}"
    return f"{over}, {where}{interface}"


def _deliver(made: Calibration, args: argparse.Namespace) -> int:
    def as_json(stream: TextIO) -> None:
        stream.write(msgspec.json.format(msgspec.json.encode(made), indent=2).decode() + "\n")

    write_file(args.out, as_json)
    if args.json is not None:
        write_file(args.json, as_json)
    if args.json != STANDARD_OUTPUT:
        find_report(GROUP, "terminal")(made, sys.stdout)
    announce([path for path in (args.json, args.out) if path], stdout_holds_data=args.json == STANDARD_OUTPUT)
    return 0


def _torchrun_arguments(args: argparse.Namespace) -> dict[str, Any]:
    return {name: value for name, value in vars(args).items() if name not in OWN_OPTIONS}


def _parse(argv: list[str]) -> argparse.Namespace:
    parser = torchrun_parser()
    parser.prog = "stepscope calibrate"
    parser.error = lambda message: _refuse(suggesting(parser, message))  # type: ignore[method-assign]
    parser.print_help = lambda file=None: _print_help()  # type: ignore[method-assign]
    _add_options(parser)
    args = parser.parse_args([*argv, SCRIPT])
    if args.training_script != SCRIPT or args.training_script_args or args.module or args.no_python:
        _refuse(f"calibrate runs no script, and {args.training_script!r} looks like one")
    return args


def _add_options(parser: argparse.ArgumentParser) -> None:
    _add(parser, "--out", str, "FILE", "fabric.json", "what to write")
    _add(parser, "-b --min-bytes --minbytes", size, "SIZE", "1K", "smallest array")
    _add(parser, "-e --max-bytes --maxbytes", size, "SIZE", "256M", "largest array")
    _add(parser, "-f --step-factor --stepfactor", _factor, "F", "2", "between sizes")
    _add(parser, "--collectives", _collectives, "NAME,...", ",".join(COLLECTIVES), "which")
    _add(parser, "-n --repeats", _count, "N", "20", "repetitions of a size, at most")
    _add(parser, "-w --warmup", _count, "N", "5", "operations before each size, not timed")
    budget = "keep to this with fewer repetitions, of three at least; sizes that would take ten times as long are left out"
    _add(parser, "--seconds-per-size", _seconds, "S", "2", budget)
    parser.add_argument("--backend", choices=("gloo", "nccl"), help="default: nccl on GPUs, gloo on CPUs")
    add_option(parser)
    add_output_options(parser)


def _add(
    parser: argparse.ArgumentParser,
    flags: str,
    kind: Callable[[str], Any],
    metavar: str,
    default: str,
    text: str,
) -> None:
    """An option whose default is written as users write it."""
    parser.add_argument(
        *flags.split(), type=kind, metavar=metavar, default=kind(default), help=f"{text} (default: {default})"
    )


def sizes(least: int, most: int, factor: float) -> list[int]:
    """From `least` to `most` bytes by a factor; raises InputError where that is none, or too many."""
    if least > most:
        raise InputError(f"--min-bytes {least} is more than --max-bytes {most}; exchange them")
    found, value = [], float(least)
    while value <= most:
        found.append(round(value))
        value *= factor
        if len(found) > MOST_SIZES:
            raise InputError(f"more than {MOST_SIZES} sizes; raise --step-factor (2 doubles)")
    return found


def size(text: str) -> int:
    """A size as nccl-tests takes it: 64K is 64 KiB, and so are M and G binary."""
    number, unit = (text[:-1], text[-1].lower()) if text[-1:].isalpha() else (text, "")
    if unit not in _UNITS or not number.isdecimal() or not SMALLEST <= int(number) * _UNITS[unit] <= LARGEST:
        raise argparse.ArgumentTypeError(f"{text!r} is no size from 4 bytes to 16G; write 4096, 64K or 256M")
    return int(number) * _UNITS[unit]


def _collectives(text: str) -> list[str]:
    names = list(dict.fromkeys(text.split(",")))
    unknown = [name for name in names if name not in COLLECTIVES]
    if unknown:
        raise argparse.ArgumentTypeError(f"{unknown[0]!r} is none of {', '.join(COLLECTIVES)}")
    return names


def _factor(text: str) -> float:
    return _number(text, 1.05, 1024.0)


def _seconds(text: str) -> float:
    return _number(text, 0.01, 3600.0)


def _number(text: str, low: float, high: float) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not low <= value <= high:
        raise argparse.ArgumentTypeError(f"{text!r} is no number from {low:g} to {high:g}")
    return value


def _count(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= 10_000:
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number from 1 to 10000")
    return int(text)


def _print_help() -> None:
    options = Parser(prog="stepscope calibrate", usage=argparse.SUPPRESS, add_help=False)
    _add_options(options)
    print(__doc__.strip(), options.format_help().strip(), sep="\n\n")


def _refuse(message: str) -> NoReturn:
    raise InputError(f"{message} (see `stepscope calibrate --help`)")
