"""The audit as one HTML file: self-contained, opens offline, asks no network for anything."""

from __future__ import annotations

from typing import TextIO

from stepscope.audit.result import Audit
from stepscope_reports.extras import extra


def render(audit: Audit, stream: TextIO) -> None:
    """Write the page. Raises InputError where the extra `html` is not installed."""
    with extra("html"):
        from stepscope_reports.html.page import page
    stream.write(page(audit))
