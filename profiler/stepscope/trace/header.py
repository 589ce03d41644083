"""What a trace file says of its run, from the fields around the events and from the file's name."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, TypeVar

import msgspec

from stepscope.trace.columns import Header
from stepscope.trace.files import TraceFile

_RANK_IN_NAME = re.compile(r"(?:^|[^a-z])(?:global[-_]?)?(?:rank|worker)[-_=.\[]?(\d+)", re.IGNORECASE)

_MANY_RANKS = 1 << 31
"""More ranks than this are none: a damaged or foreign file."""

_T = TypeVar("_T")


def _field(fields: dict[str, msgspec.Raw], name: str, kind: type[_T]) -> _T | None:
    """A field if it is there and of that kind; numbers and booleans may be strings."""
    try:
        return msgspec.json.decode(fields[name], type=kind, strict=False)
    except (KeyError, msgspec.DecodeError):
        return None


def read_header(parts: Iterable[dict[str, msgspec.Raw]]) -> tuple[Header, int | None]:
    """The header, and `baseTimeNanoseconds` where the file has it; parts are the fields before and after the events."""
    fields: dict[str, msgspec.Raw] = {}
    for part in parts:
        fields |= part
    run = _field(fields, "distributedInfo", dict[str, msgspec.Raw]) or {}
    devices = _field(fields, "deviceProperties", list[dict[str, Any]]) or []
    rank, world_size = _field(run, "rank", int), _field(run, "world_size", int)
    header = Header(
        rank=rank if rank is not None and 0 <= rank < _MANY_RANKS else None,
        world_size=world_size if world_size is not None and 0 < world_size <= _MANY_RANKS else None,
        backend=_field(run, "backend", str),
        host=_field(fields, "host_name", str),
        groups=tuple(_field(run, "pg_config", list[dict[str, Any]]) or ()),
        device_names=tuple(str(device["name"]) for device in devices if "name" in device),
        with_stack=_field(fields, "with_stack", bool) or False,
        record_shapes=_field(fields, "record_shapes", bool) or False,
    )
    return header, _field(fields, "baseTimeNanoseconds", int)


def rank_from_name(path: TraceFile) -> int | None:
    """The rank that a file's name tells: rank0, rank-3, rank_12, worker7."""
    match = _RANK_IN_NAME.search(path.name)
    return int(match[1]) if match else None
