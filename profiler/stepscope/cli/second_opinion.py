"""Ask HolisticTraceAnalysis and torch-tb-profiler about the same traces.

Their figures stand beside ours, and each difference is explained by computing it:
from our definition to the peer's, one change at a time, on our own data. What the
peer's own definition leaves over is unexplained, and would be an error of theirs
or of ours. A peer runs in a process of its own; what it can't read is said in one
line. A PATH is what `stepscope audit` takes.

example:
  stepscope second-opinion 'traces/rank*.json.gz'
"""

from __future__ import annotations

import argparse
from pathlib import Path

from stepscope.audit.build import audit
from stepscope.cli.arguments import add_output_options
from stepscope.cli.output import refuse_existing, refuse_same
from stepscope.cli.plain_reports import deliver, find_report
from stepscope.cli.progress import Progress, progress_bar
from stepscope.errors import InputError
from stepscope.second_opinion.facts import FileFacts, read_raw
from stepscope.second_opinion.opinion import second_opinion
from stepscope.second_opinion.peers import Limits
from stepscope.second_opinion.result import SecondOpinion
from stepscope.trace.classify import classify
from stepscope.trace.discover import find_local_traces
from stepscope.trace.reader import read

GROUP = "stepscope.second_opinion_reports"


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options of `stepscope second-opinion`."""
    limits = Limits()
    parser.add_argument("paths", nargs="+", metavar="PATH", help="run directory, trace, folder or glob")
    parser.add_argument(
        "--report",
        default="terminal",
        metavar="FORMAT",
        help="terminal (default), markdown, or one installed",
    )
    parser.add_argument("-o", "--output", metavar="FILE", help="write the report to a file")
    parser.add_argument(
        "--time-limit",
        type=_positive,
        default=limits.seconds,
        metavar="S",
        help=f"seconds that a peer may take for all files (default {limits.seconds:g})",
    )
    parser.add_argument(
        "--memory-limit",
        type=_positive,
        default=limits.memory_bytes / 2**30,
        metavar="GIB",
        help=f"memory that a peer may take (default {limits.memory_bytes >> 30})",
    )
    add_output_options(parser)


def _positive(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 < value < 1e6:
        raise argparse.ArgumentTypeError(f"{text!r} is no number above 0")
    return value


def execute(args: argparse.Namespace) -> int:
    """Audit the files, ask the peers, report."""
    render = find_report(GROUP, args.report)
    refuse_existing((args.output, args.json), force=args.force)
    files = find_local_traces(args.paths)
    refuse_same((args.output, args.json, *files))
    limits = Limits(args.time_limit, int(args.memory_limit * 2**30))
    with progress_bar("asking") as progress:
        made = opinion_of(files, limits, progress)
    deliver(made, render, output=args.output, json=args.json, data=args.report != "terminal")
    if all(peer.missing for peer in made.peers):
        raise InputError("; ".join(peer.missing for peer in made.peers if peer.missing))
    return 0


def opinion_of(
    files: list[Path], limits: Limits | None = None, progress: Progress | None = None
) -> SecondOpinion:
    """Our own audit of the files, all together, and what the peers say of each."""
    recordings = [classify(read(file)) for file in files]
    made = audit(recordings)
    facts = [
        FileFacts(recording, rank, read_raw(file))
        for recording, rank, file in zip(recordings, made.ranks, files, strict=True)
    ]
    return second_opinion(facts, limits, progress)
