"""What every test may use."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import msgspec
import pytest

from recordings import Finished, run
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
def made_once(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, Callable[[Path], None]], Path]:
    """Hands back a folder of that name, filled by the first of all workers that asks for it; what is in it is only read."""
    base = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        base = base.parent  # a worker's folder lies in that of the whole session

    def hand_out(name: str, make: Callable[[Path], None]) -> Path:
        folder = base / f"once-{name}"
        with (base / f"once-{name}.lock").open("a+") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            lock.seek(0)
            if not lock.read():
                shutil.rmtree(folder, ignore_errors=True)  # of a worker that failed at it
                folder.mkdir()
                make(folder)
                lock.write("made")
        return folder

    return hand_out


@pytest.fixture(scope="session")
def ddp_run(made_once: Callable[[str, Callable[[Path], None]], Path]) -> tuple[Finished, Path]:
    """`stepscope run` of ddp.py, all as by default: how it ended, and its run directory."""

    def make(folder: Path) -> None:
        finished = run("--out", folder / "run", "ddp.py")
        (folder / "finished.json").write_bytes(msgspec.json.encode(finished))

    folder = made_once("ddp", make)
    finished = msgspec.json.decode((folder / "finished.json").read_bytes(), type=Finished)
    return finished, folder / "run"


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
