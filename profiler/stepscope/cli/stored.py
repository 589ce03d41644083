"""Audits that were made before, read back from their files."""

from __future__ import annotations

from pathlib import Path

import msgspec

from stepscope.audit.result import SCHEMA, Audit
from stepscope.errors import InputError
from stepscope.json_numbers import refuse_too_large
from stepscope.trace.files import holds, located, reason

AUDIT_FILE = "audit.json"


class _Named(msgspec.Struct):
    """The one field that tells our files from others."""

    schema: str | None = None


def stored_file(path: str | Path) -> Path | None:
    """The file that holds the audit which a path names: itself, or the one in a run directory. None where it names traces."""
    place = located(path)
    if not isinstance(place, Path):
        return None
    if holds(place, AUDIT_FILE):
        return place / AUDIT_FILE
    return place if place.suffix == ".json" and place.is_file() and _schema(_content(place)) else None


def load_audit(file: Path) -> Audit:
    """The audit in a file. Raises InputError where the file holds none, or one of another schema."""
    content = _content(file)
    schema = _schema(content)
    if schema != SCHEMA:
        other = f" but of {schema}" if schema else ""
        raise InputError(f"{file} is no audit of {SCHEMA}{other}; name an audit.json or a run directory")
    try:
        made = msgspec.json.decode(content, type=Audit)
    except msgspec.DecodeError as error:
        raise InputError(f"cannot read {file}: {error}; make it again with `stepscope audit`") from error
    refuse_too_large(content, file)
    return made


def _content(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise InputError(f"{file}: cannot be read: {reason(error)}") from error


def _schema(content: bytes) -> str | None:
    """What JSON says it holds; None for a trace, and for what is no JSON."""
    try:
        return msgspec.json.decode(content, type=_Named).schema
    except (msgspec.DecodeError, RecursionError):
        return None
