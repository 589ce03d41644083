"""A budget as JSON, with the unit of every figure in its name."""

from __future__ import annotations

import json
from dataclasses import fields, is_dataclass
from typing import Any

from stepscope.budget.quantities import Rate, Size, Time
from stepscope.budget.result import Budget, Unmodelled


def to_json(budget: Budget | Unmodelled) -> str:
    """Indented JSON in the order of the schema, with a newline at the end."""
    return json.dumps(plain(budget), indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def plain(value: object) -> Any:
    """Dataclasses as dictionaries, quantities as numbers under a name that says their unit; None is left out."""
    if isinstance(value, tuple):
        return [plain(item) for item in value]
    if not is_dataclass(value):
        return value
    named = ((field.name, getattr(value, field.name)) for field in fields(value))
    return dict(_named(name, item) for name, item in named if item is not None)


def _named(name: str, value: object) -> tuple[str, Any]:
    if isinstance(value, Time):
        return f"{name}_ms", value.ms
    if isinstance(value, Size):
        return f"{name}_bytes", value.bytes
    if isinstance(value, Rate):
        return f"{name}_gb_per_s", value.gb_per_s
    return name, plain(value)
