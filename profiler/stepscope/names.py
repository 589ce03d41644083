"""Names of files in results: a path may hold any bytes, JSON holds text."""

from __future__ import annotations

import os
import re
from pathlib import Path

_BYTE = re.compile(rb"\\x([0-9a-f]{2})")


def as_text(path: str | Path) -> str:
    r"""A path as UTF-8 has it; bytes that are no text become escapes such as ``\\xff``."""
    return os.fsencode(str(path)).decode("utf-8", "backslashreplace")


def as_path(text: str) -> Path:
    """The file that `as_text` named, where it is there; else the text as a path."""
    meant = os.fsdecode(_BYTE.sub(lambda found: bytes.fromhex(found[1].decode()), text.encode()))
    return Path(meant) if not Path(text).exists() and Path(meant).exists() else Path(text)
