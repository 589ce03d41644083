"""What the terminal report says of an audit, and its sections."""

from __future__ import annotations

import io

from stepscope.audit.result import Audit
from stepscope_reports import terminal


def rendered(audit: Audit) -> str:
    stream = io.StringIO()
    terminal.render(audit, stream)
    return stream.getvalue()


def section(text: str, title: str) -> list[str]:
    """The lines below a title, up to the next blank line."""
    lines = text.splitlines()
    start = next(index for index, line in enumerate(lines) if line.startswith(title)) + 1
    end = next((index for index in range(start, len(lines)) if not lines[index]), len(lines))
    return lines[start:end]
