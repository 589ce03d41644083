"""A headless Chromium that opens pages from disk, and what it saw."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from headless import Page, chromium
from stepscope.audit.result import Audit
from stepscope_reports.html import render


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    """One browser for all tests."""
    if not shutil.which("chromium") or not shutil.which("chromedriver"):
        pytest.skip("needs chromium and chromedriver: apt-get install chromium chromium-driver")
    with chromium(tmp_path_factory.mktemp("profile")) as page:
        yield page


@pytest.fixture(scope="session")
def rendered(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Audit], Path]:
    """Renders an audit to a file; the same one only once."""
    folder = tmp_path_factory.mktemp("pages")
    files: dict[bytes, Path] = {}

    def render_once(audit: Audit) -> Path:
        key = hashlib.sha256(msgspec.json.encode(audit)).digest()
        if key not in files:
            files[key] = folder / f"{len(files)}.html"
            with files[key].open("w", encoding="utf-8") as stream:
                render(audit, stream)
        return files[key]

    return render_once


@pytest.fixture
def opened(browser: Page, rendered: Callable[[Audit], Path]) -> Callable[[Audit], Page]:
    """Opens the page of an audit afresh at the size of a laptop, in light, and hands back the browser."""

    def open_page(audit: Audit) -> Page:
        browser.screen(1280, 800)
        browser.prefer("light")
        browser.open(rendered(audit))
        return browser

    return open_page
