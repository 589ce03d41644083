"""Make the JSON Schema of audit.json from `stepscope.audit.result`: `python -m stepscope.schema.generate` writes it anew.

The types come from the Structs, the descriptions from their docstrings and from the strings below their fields. Unknown
fields are allowed, since the schema only ever grows.
"""

from __future__ import annotations

import ast
import inspect
import json
from pathlib import Path
from typing import Any

import msgspec

from stepscope.audit import result

SCHEMA_FILE = Path(__file__).with_name("audit-1.json")


def audit_schema() -> dict[str, Any]:
    """The JSON Schema (draft 2020-12) that every audit.json of `stepscope.audit/1` obeys."""
    schema = msgspec.json.schema(result.Audit)
    for name, fields in _field_docstrings().items():
        properties = schema["$defs"].get(name, {}).get("properties", {})
        for field, text in fields.items():
            if field in properties:
                properties[field] = {"description": text, **properties[field]}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": result.SCHEMA,
        "description": " ".join((result.__doc__ or "").split()),
        **schema,
    }


def _field_docstrings() -> dict[str, dict[str, str]]:
    """Class name to field name to the string that stands below the field in the source."""
    tree = ast.parse(inspect.getsource(result))
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


def schema_text() -> str:
    """The schema as the committed file holds it."""
    return json.dumps(audit_schema(), indent=1, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    SCHEMA_FILE.write_text(schema_text(), encoding="utf-8")
