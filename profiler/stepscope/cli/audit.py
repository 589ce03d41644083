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
from typing import Any

import msgspec

from stepscope.audit.build import audit
from stepscope.audit.result import Audit, Thresholds, Warning
from stepscope.cli.arguments import add_output_options, share
from stepscope.cli.gate import Gate, add_gate_options
from stepscope.cli.output import refuse_existing, refuse_same
from stepscope.cli.progress import Progress, progress_bar
from stepscope.cli.reports import FOR_PEOPLE, deliver, find_report, report_for, suggest_page
from stepscope.cli.stored import AUDIT_FILE
from stepscope.errors import InputError
from stepscope.trace.classify import classify
from stepscope.trace.discover import find_traces
from stepscope.trace.reader import read
from stepscope.trace.recording import Recording

RUN_FILE = "run.json"


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options of `stepscope audit`."""
    defaults = Thresholds()
    parser.add_argument("paths", nargs="+", metavar="PATH", help="run directory, trace, folder or glob")
    parser.add_argument(
        "--report",
        metavar="FORMAT",
        help="terminal, html, json, or one installed (default: what -o's suffix names, else terminal)",
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
    add_gate_options(parser)
    add_output_options(parser)


def execute(args: argparse.Namespace) -> int:
    """Audit, report, write what was asked for, and hold it against the gates."""
    report = find_report(args.report or report_for(args.output))
    report.refuse_terminal(args.output)
    gate = Gate.of(args)
    kept = _audit_file(args.paths, force=args.force)
    refuse_existing((args.output, args.json, kept), force=args.force)
    files = find_traces(args.paths)
    refuse_same((args.output, args.json, kept, *files))
    thresholds = Thresholds(cost_share=args.cost_share_threshold, comm_share=args.comm_share_threshold)
    with progress_bar("auditing") as progress:
        made = _audit_files(files, thresholds, progress, _run_description(args.paths))
    deliver(made, report, output=args.output, json=args.json, kept=kept)
    if (folder := _run_folder(args.paths)) is not None and report.name == FOR_PEOPLE:
        suggest_page(folder)
    gate.hold(made)
    return 0


def audit_paths(
    paths: Sequence[str], thresholds: Thresholds | None = None, progress: Progress | None = None
) -> Audit:
    """Audit all traces that the paths name, together; with run.json if the only path is a run directory.

    Of several files, one that is no trace is left out with a warning. Raises InputError for a path without traces, and
    where no file is left.
    """
    return _audit_files(find_traces(paths), thresholds, progress, _run_description(paths))


def _audit_files(
    files: Sequence[Path],
    thresholds: Thresholds | None,
    progress: Progress | None,
    run: dict[str, Any] | None,
) -> Audit:
    recordings: list[Recording] = []
    unreadable: list[Warning] = []
    for done, file in enumerate(files):
        if progress is not None:
            progress(done, len(files), file.name)
        try:
            recordings.append(classify(read(file)))
        except InputError as error:
            unreadable.append(Warning(code="unreadable-file", message=f"left out: {error}", source=str(file)))
            if len(unreadable) == len(files):
                raise
    if progress is not None:
        progress(len(files), len(files), "steps")
    return audit(recordings, thresholds, run, unreadable)


def _run_folder(paths: Sequence[str]) -> Path | None:
    folder = Path(paths[0])
    return folder if len(paths) == 1 and (folder / RUN_FILE).is_file() else None


def _audit_file(paths: Sequence[str], *, force: bool) -> Path | None:
    """Where a run directory keeps its audit, if this audit is to be kept there: none is yet, or --force."""
    folder = _run_folder(paths)
    if folder is None or ((folder / AUDIT_FILE).exists() and not force):
        return None
    return folder / AUDIT_FILE


def _run_description(paths: Sequence[str]) -> dict[str, Any] | None:
    folder = _run_folder(paths)
    if folder is None:
        return None
    file = folder / RUN_FILE
    try:
        return msgspec.json.decode(file.read_bytes(), type=dict[str, Any])
    except (OSError, msgspec.DecodeError, RecursionError) as error:
        raise InputError(f"cannot read {file}: {error}; remove it to audit the traces alone") from error
