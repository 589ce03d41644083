"""The audit itself, as audit.json holds it."""

from __future__ import annotations

from typing import TextIO

import msgspec

from stepscope.audit.result import Audit


def render(audit: Audit, stream: TextIO) -> None:
    """Write the audit as indented JSON, keys in the order of the schema, with a newline at the end."""
    text = msgspec.json.format(msgspec.json.encode(audit), indent=2)
    stream.write(text.decode("utf-8", "backslashreplace") + "\n")
