"""`stepscope audit PATH --report csv`: the collectives, for a spreadsheet."""

from __future__ import annotations

import csv
from typing import TextIO

from stepscope.audit.result import Audit

COLUMNS = ("rank", "step", "kind", "role", "bytes", "duration_ms", "exposed_ms")


def render(audit: Audit, stream: TextIO) -> None:
    """Write one line for each collective of the audit."""
    table = csv.writer(stream, lineterminator="\n")
    table.writerow(COLUMNS)
    table.writerows([getattr(one, column) for column in COLUMNS] for one in audit.collectives)
