"""The installed reports, and how an audit reaches its reader as one of them."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stepscope.audit.result import Audit
from stepscope.cli.output import STANDARD_OUTPUT, announce, write_bytes, write_file
from stepscope.errors import InputError
from stepscope.plugins import installed, load

TEXT_REPORTS, BINARY_REPORTS = "stepscope.reports", "stepscope.binary_reports"
"""Groups of entry points, a report's name to `render(audit, stream)`: a text stream, or one of bytes."""

FOR_PEOPLE = "terminal"
"""The one report that no program reads."""

_BY_SUFFIX = {".html": "html", ".json": "json", ".md": "markdown", ".png": "png", ".svg": "svg"}


@dataclass(frozen=True, slots=True)
class Report:
    """One installed report. binary: it writes bytes."""

    name: str
    render: Callable[[Audit, Any], None]
    binary: bool

    def write(self, made: Audit, path: str | Path) -> None:
        """Write it to a file, or to standard output where the path is "-"."""
        if self.binary:
            write_bytes(path, lambda stream: self.render(made, stream))
        else:
            write_file(path, lambda stream: self.render(made, stream))

    def refuse_terminal(self, output: str | None) -> None:
        """Raise InputError where its bytes would end up on a terminal."""
        if self.binary and output in (None, STANDARD_OUTPUT) and sys.stdout.isatty():
            raise InputError(f"the report {self.name} is no text for a terminal; name a file with -o")


def report_for(output: str | None) -> str:
    """The name of the report that a file's suffix asks for; the terminal's where it asks for none."""
    return _BY_SUFFIX.get(Path(output or "").suffix.lower(), FOR_PEOPLE)


def find_report(name: str) -> Report:
    """The report of that name among the installed ones; raises InputError for any other."""
    text, binary = installed(TEXT_REPORTS), installed(BINARY_REPORTS)
    found = {**binary, **text}
    if name not in found:
        raise InputError(f"no report {name!r}; there are {', '.join(sorted(found))}")
    return Report(name, load(found[name]), binary=name not in text)


def deliver(
    made: Audit,
    report: Report,
    *,
    output: str | None = None,
    json: str | None = None,
    kept: Path | None = None,
) -> None:
    """Write the report to `output` or standard output, the audit to `json` and `kept`, then say what was written.

    `--json -` takes standard output for itself.
    """
    as_json = find_report("json")
    files = [file for file in (json, kept) if file is not None]
    for file in files:  # before standard output, which may be full or gone
        as_json.write(made, file)
    if output is not None or json != STANDARD_OUTPUT:
        report.write(made, output or STANDARD_OUTPUT)
    data = report.name != FOR_PEOPLE and output in (None, STANDARD_OUTPUT)
    written = [file for file in (output, *files) if file is not None]
    announce(written, stdout_holds_data=json == STANDARD_OUTPUT or data)


def suggest_page(folder: Path) -> None:
    """Say what to run next, beside the report: on standard error."""
    print(f"stepscope: see it as a page: stepscope open {shlex.quote(str(folder))}", file=sys.stderr)
