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

import msgspec

from stepscope.audit.result import SCHEMA, Audit
from stepscope.cli.arguments import add_output_options
from stepscope.cli.audit import AUDIT_FILE, audit_paths
from stepscope.cli.output import refuse_existing, refuse_same
from stepscope.cli.plain_reports import deliver, find_report
from stepscope.cli.progress import progress_bar
from stepscope.compare.between import compare
from stepscope.errors import InputError

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
    made = compare(audit_of(args.a), audit_of(args.b), (args.a, args.b))
    deliver(made, render, output=args.output, json=args.json, data=args.report != "terminal")
    return 0


def audit_of(path: str) -> Audit:
    """The audit that a path names: audit.json itself, that of a run directory, or one made of the traces there.

    Raises InputError where there is none.
    """
    place = Path(path)
    kept = place / AUDIT_FILE
    if kept.is_file():
        return _load(kept)
    if place.is_file() and place.suffix == ".json" and _schema(place) is not None:
        return _load(place)
    with progress_bar(f"auditing {place.name}") as progress:
        return audit_paths([path], progress=progress)


class _Named(msgspec.Struct):
    """The one field that tells our files from others."""

    schema: str | None = None


def _schema(file: Path) -> str | None:
    """What a JSON file says it holds; None for a trace, and for what can't be read as JSON."""
    try:
        return msgspec.json.decode(file.read_bytes(), type=_Named).schema
    except (OSError, msgspec.DecodeError, RecursionError):
        return None


def _load(file: Path) -> Audit:
    schema = _schema(file)
    if schema != SCHEMA:
        raise InputError(
            f"{file} is no audit of {SCHEMA}{f' but {schema}' if schema else ''}; name an audit.json or traces"
        )
    try:
        return msgspec.json.decode(file.read_bytes(), type=Audit)
    except (OSError, msgspec.DecodeError) as error:
        raise InputError(f"cannot read {file}: {error}; make it again with `stepscope audit`") from error
