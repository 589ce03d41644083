"""Compare two runs or audits: what changed, and what of it is noise.

A and B are each a run directory, an audit.json, a trace, a folder of traces or a
quoted glob. A run directory is compared by its audit.json where it has one.
Each counted step is a sample: a change is told from noise where the 95 % interval
of the difference of medians leaves zero out; where it does not, the report says
about how many steps would tell. Jobs that are not alike are compared with a
warning.

example:
  stepscope compare runs/before runs/after --report markdown -o comment.md
"""

from __future__ import annotations

import argparse
from pathlib import Path

from stepscope.audit.result import Audit
from stepscope.cli.arguments import add_output_options
from stepscope.cli.audit import audit_paths
from stepscope.cli.output import refuse_existing, refuse_same
from stepscope.cli.plain_reports import deliver, find_report
from stepscope.cli.progress import progress_bar
from stepscope.cli.stored import load_audit, stored_file
from stepscope.compare.between import compare
from stepscope.names import as_text

GROUP = "stepscope.compare_reports"


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options of `stepscope compare`."""
    parser.add_argument("a", metavar="A", help="what it was: run directory, audit.json or traces")
    parser.add_argument("b", metavar="B", help="what it is now")
    parser.add_argument(
        "--report",
        default="terminal",
        metavar="FORMAT",
        help="terminal (default), markdown, or one installed",
    )
    parser.add_argument("-o", "--output", metavar="FILE", help="write the report to a file")
    add_output_options(parser)


def execute(args: argparse.Namespace) -> int:
    """Load or make both audits, compare them, report."""
    render = find_report(GROUP, args.report)
    refuse_existing((args.output, args.json), force=args.force)
    refuse_same((args.output, args.json, *(path for path in (args.a, args.b) if Path(path).is_file())))
    made = compare(audit_of(args.a), audit_of(args.b), (as_text(args.a), as_text(args.b)))
    deliver(made, render, output=args.output, json=args.json, data=args.report != "terminal")
    return 0


def audit_of(path: str) -> Audit:
    """The audit that a path names: audit.json itself, that of a run directory, or one made of the traces there.

    Raises InputError where there is none.
    """
    stored = stored_file(path)
    if stored is not None:
        return load_audit(stored)
    with progress_bar(f"auditing {Path(path).name}") as progress:
        return audit_paths([path], progress=progress)
