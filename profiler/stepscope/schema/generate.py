"""Make the JSON Schemas of what commands write from its Structs: `python -m stepscope.schema.generate` writes them anew.

The types come from the Structs, the descriptions from their docstrings and from the strings below their fields. Unknown
fields are allowed, since a schema only ever grows.
"""

from __future__ import annotations

import ast
import inspect
import json
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec

from stepscope.audit import result as audit
from stepscope.compare import result as compare
from stepscope.second_opinion import result as second_opinion
from stepscope.sweep import result as sweep

_FOLDER = Path(__file__).parent
SCHEMA_FILE = _FOLDER / "audit-1.json"

SCHEMAS: dict[Path, tuple[ModuleType, type[msgspec.Struct]]] = {
    SCHEMA_FILE: (audit, audit.Audit),
    _FOLDER / "compare-1.json": (compare, compare.Comparison),
    _FOLDER / "second-opinion-1.json": (second_opinion, second_opinion.SecondOpinion),
    _FOLDER / "sweep-1.json": (sweep, sweep.Sweep),
}
"""Each file, the module that defines what it describes, and the outermost Struct there."""


def schema_of(module: ModuleType, outermost: type[msgspec.Struct]) -> dict[str, Any]:
    """The JSON Schema (draft 2020-12) of a Struct, titled by its module's SCHEMA."""
    schema = msgspec.json.schema(outermost)
    for name, fields in _field_docstrings(module).items():
        properties = schema["$defs"].get(name, {}).get("properties", {})
        for field, text in fields.items():
            if field in properties:
                properties[field] = {"description": text, **properties[field]}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": module.SCHEMA,
        "description": " ".join((module.__doc__ or "").split()),
        **schema,
    }


def _field_docstrings(module: ModuleType) -> dict[str, dict[str, str]]:
    """Class name to field name to the string that stands below the field in the source."""
    tree = ast.parse(inspect.getsource(module))
    return {node.name: _texts(node) for node in tree.body if isinstance(node, ast.ClassDef)}


def _texts(node: ast.ClassDef) -> dict[str, str]:
    texts = {}
    for field, below in zip(node.body, node.body[1:], strict=False):
        match field, below:
            case (
                ast.AnnAssign(target=ast.Name(id=name)),
                ast.Expr(value=ast.Constant(value=str(text))),
            ):
                texts[name] = " ".join(text.split())
    return texts


def schema_text(file: Path = SCHEMA_FILE) -> str:
    """The schema as the committed file holds it."""
    return json.dumps(schema_of(*SCHEMAS[file]), indent=1, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    for written in SCHEMAS:
        written.write_text(schema_text(written), encoding="utf-8")
