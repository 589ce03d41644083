"""Audits that were made before, read back from their files."""

from __future__ import annotations

from pathlib import Path

import msgspec

from stepscope.audit.result import SCHEMA, Audit
from stepscope.errors import InputError
from stepscope.json_numbers import refuse_too_large
from stepscope.trace.files import located

AUDIT_FILE = "audit.json"


class _Named(msgspec.Struct):
    """The one field that tells our files from others."""

    schema: str | None = None


def stored_file(path: str | Path) -> Path | None:
    """The file that holds the audit which a path names: itself, or the one in a run directory. None where it names traces."""
    place = located(path)
    if not isinstance(place, Path):
        return None
    if (place / AUDIT_FILE).is_file():
        return place / AUDIT_FILE
    return place if place.is_file() and place.suffix == ".json" and _schema(place) is not None else None


def load_audit(file: Path) -> Audit:
    """The audit in a file. Raises InputError where the file holds none, or one of another schema."""
    schema = _schema(file)
    if schema != SCHEMA:
        other = f" but of {schema}" if schema else ""
        raise InputError(f"{file} is no audit of {SCHEMA}{other}; name an audit.json or a run directory")
    try:
        content = file.read_bytes()
        made = msgspec.json.decode(content, type=Audit)
    except (OSError, msgspec.DecodeError) as error:
        raise InputError(f"cannot read {file}: {error}; make it again with `stepscope audit`") from error
    refuse_too_large(content, file)
    return made


def _schema(file: Path) -> str | None:
    """What a JSON file says it holds; None for a trace, and for what can't be read as JSON."""
    try:
        return msgspec.json.decode(file.read_bytes(), type=_Named).schema
    except (OSError, msgspec.DecodeError, RecursionError):
        return None
