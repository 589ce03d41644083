"""What every test may use."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import msgspec
import pytest

from stepscope.audit.result import Audit
from stepscope.schema.generate import SCHEMA_FILE

REPOSITORY = Path(__file__).resolve().parents[1]

# Hundreds of processes that tests start import our modules from the source tree, which no installer compiles: let the
# first leave its bytecode to the others, also where the machine's environment says otherwise, as CI's does.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files with slow tests first: workers take whole files in this order, and quick ones even out how they end."""
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: item.path not in slow)


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of real traces, malformed cases and definitions that lies beside a developer's checkout."""
    folder = REPOSITORY.parent / "shared"
    if not folder.is_dir():
        pytest.skip("needs the folder shared/ with real traces beside the checkout; a clone has none")
    return folder


@pytest.fixture(scope="session")
def repository() -> Path:
    return REPOSITORY


@pytest.fixture(scope="session")
def validated() -> Callable[[Audit], dict[str, Any]]:
    """Checks an audit against the committed schema and hands it back as plain data."""
    validator = jsonschema.Draft202012Validator(json.loads(SCHEMA_FILE.read_text("utf-8")))

    def check(audit: Audit) -> dict[str, Any]:
        plain: dict[str, Any] = json.loads(msgspec.json.encode(audit))
        validator.validate(plain)
        return plain

    return check
