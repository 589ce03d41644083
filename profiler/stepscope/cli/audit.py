"""Audit run directories or any Kineto traces.

A PATH is a run directory, a trace that torch.profiler wrote (.json, .json.gz),
a folder of traces, or a quoted glob. All traces together are one audit: give
the ranks of one run. A run directory that has no audit.json yet gets one;
nothing else is written unless -o or --json names it.

exit code: 0 done, 1 the verdict is one of --fail-on or worse than --baseline,
2 bad input

examples:
  stepscope audit runs/demo
  stepscope audit 'traces/rank*.json.gz' --json - --fail-on comm-bound
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from stepscope.audit.result import Audit, Thresholds, Warning
from stepscope.capture.metadata import RunMetadata
from stepscope.capture.nodes import as_one_run
from stepscope.cli.arguments import add_output_options, share
from stepscope.cli.gate import Gate, add_gate_options
from stepscope.cli.output import refuse_existing, refuse_same
from stepscope.cli.progress import Progress, progress_bar
from stepscope.cli.reports import FOR_PEOPLE, deliver, find_report, report_for, suggest_page
from stepscope.cli.stored import AUDIT_FILE
from stepscope.errors import InputError
from stepscope.executors import LOCAL
from stepscope.trace.files import TraceFile, holds, located, reading_errors, reason

if TYPE_CHECKING:
    from stepscope.trace.discover import Found

RUN_FILE = "run.json"
_T = TypeVar("_T")


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options of `stepscope audit`."""
    defaults = Thresholds()
    parser.add_argument("paths", nargs="+", metavar="PATH", help="run directory, trace, folder or glob")
    parser.add_argument(
        "--report",
        metavar="FORMAT",
        help="terminal, html, markdown, json, png, svg, perfetto, or another that is installed (default: what -o's suffix names, "
        "else terminal)",
    )
    parser.add_argument(
        "-o", "--output", metavar="FILE", help="write the report to a file, not to standard output"
    )
    parser.add_argument(
        "--cost-share-threshold",
        type=share,
        default=defaults.cost_share,
        metavar="SHARE",
        help=f"share of the step above which its cost makes it comm-bound (default {defaults.cost_share})",
    )
    parser.add_argument(
        "--comm-share-threshold",
        type=share,
        default=defaults.comm_share,
        metavar="SHARE",
        help=f"share of the step from which hidden communication is comm-sensitive (default {defaults.comm_share})",
    )
    parser.add_argument(
        "--engine",
        default=LOCAL,
        metavar="ENGINE",
        help="who reads the traces: local (default: as many processes as pay), local:N, or dask://host:port",
    )
    add_gate_options(parser)
    add_output_options(parser)


def execute(args: argparse.Namespace) -> int:
    """Audit, report, write what was asked for, and hold it against the gates."""
    from stepscope.trace.discover import look_for_traces

    report = find_report(args.report or report_for(args.output))
    report.refuse_terminal(args.output)
    gate = Gate.of(args)
    kept = _audit_file(args.paths, force=args.force)
    refuse_existing((args.output, args.json, kept), force=args.force)
    found = look_for_traces(args.paths)
    refuse_same((args.output, args.json, kept, *(file for file in found.traces if isinstance(file, Path))))
    thresholds = Thresholds(cost_share=args.cost_share_threshold, comm_share=args.comm_share_threshold)
    with progress_bar("auditing") as progress:
        made = _audit_files(found, thresholds, progress, _run_description(args.paths), args.engine)
    deliver(made, report, output=args.output, json=args.json, kept=kept)
    if isinstance(folder := _run_folder(args.paths), Path) and report.name == FOR_PEOPLE:
        suggest_page(folder)
    gate.hold(made)
    return 0


def audit_paths(
    paths: Sequence[str], thresholds: Thresholds | None = None, progress: Progress | None = None
) -> Audit:
    """Audit all traces that the paths name, together; with run.json if the only path is a run directory.

    What is no trace, or no file, is left out with a warning. Raises InputError for a path without traces, and where none is left.
    """
    from stepscope.trace.discover import look_for_traces

    return _audit_files(look_for_traces(paths), thresholds, progress, _run_description(paths))


def _audit_files(
    found: Found,
    thresholds: Thresholds | None,
    progress: Progress | None,
    run: dict[str, Any] | None,
    engine: str = LOCAL,
) -> Audit:
    from stepscope.audit.build import audit
    from stepscope.executors.ranks import read_ranks
    from stepscope.trace.discover import of_the_run

    traces, strays = of_the_run(found.traces, run)
    read = read_ranks(traces, engine, progress)
    left_out = [
        Warning(code="unreadable-file", message=f"left out: {error}", source=str(file))
        for file, error in (*found.left_out, *read.unreadable)
    ]
    not_ours = f"left out: {RUN_FILE} does not name it; to audit it, name the file"
    left_out += [Warning(code="not-of-the-run", message=not_ours, source=str(stray)) for stray in strays]
    return audit(read.recordings, thresholds, run, left_out)


def _run_folder(paths: Sequence[str]) -> TraceFile | None:
    if len(paths) != 1:
        return None
    folder = located(paths[0])
    return folder if holds(folder, RUN_FILE) else None


def _audit_file(paths: Sequence[str], *, force: bool) -> Path | None:
    """Where a run directory keeps its audit, if this audit is to be kept there: none is yet, or --force.

    Nothing is written to a remote one.
    """
    folder = _run_folder(paths)
    if not isinstance(folder, Path) or ((folder / AUDIT_FILE).exists() and not force):
        return None
    return folder / AUDIT_FILE


def _run_description(paths: Sequence[str]) -> dict[str, Any] | None:
    """run.json, if run directories alone are audited; of several, the nodes' parts of one job put together."""
    folders = [folder for path in paths if (folder := _run_folder([path])) is not None]
    if not folders or len(folders) < len(paths):
        return None
    if len(folders) == 1:
        return _described(folders[0], dict[str, Any])
    run = as_one_run([_described(folder, RunMetadata) for folder in folders])
    return None if run is None else msgspec.to_builtins(run)


def _described(folder: TraceFile, kind: type[_T]) -> _T:
    file = folder / RUN_FILE
    try:
        return msgspec.json.decode(file.read_bytes(), type=kind)
    except _unreadable() as error:
        raise InputError(
            f"cannot read {file}: {reason(error)}; remove it to audit the traces alone"
        ) from error


def _unreadable() -> tuple[type[Exception], ...]:
    return (*reading_errors(), msgspec.DecodeError, RecursionError)
