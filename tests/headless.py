"""Headless Chromium by its driver: opens a file, does what a reader does, and says what the page did.

Used by the tests of the HTML report and by its benchmark.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from selenium.webdriver import ActionChains, Chrome, ChromeOptions
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webelement import WebElement

FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--force-device-scale-factor=1",
)
_FIGURES = "return [...document.querySelectorAll('data[data-path]')].map(d => [d.dataset.path, d.value, d.textContent])"


class Page:
    """A page that is open in the browser."""

    def __init__(self, driver: Chrome) -> None:
        self._driver = driver

    def open(self, file: Path) -> None:
        """Open a file afresh; what earlier pages logged and remembered is forgotten."""
        self._driver.get("about:blank")
        for log in ("browser", "performance"):
            self._driver.get_log(log)  # type: ignore[no-untyped-call]
        self._driver.get(file.resolve().as_uri())
        self.run("try { localStorage.clear() } catch {}")

    def screen(self, width: int, height: int) -> None:
        """The size of the window's inside in pixels."""
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500}
        self.command("Emulation.setDeviceMetricsOverride", size)

    def prefer(self, theme: str) -> None:
        """What the reader's system prefers: dark or light."""
        self.command(
            "Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": theme}]}
        )

    def command(self, name: str, arguments: dict[str, Any] | None = None) -> Any:
        """A command of the Chrome DevTools protocol."""
        return self._driver.execute_cdp_cmd(name, arguments or {})

    def run(self, script: str, *arguments: object) -> Any:
        """What a script in the page returns."""
        return self._driver.execute_script(script, *arguments)

    def frames(self) -> None:
        """Wait until what was asked for has been drawn."""
        self._driver.execute_async_script(
            "const done = arguments[0]; requestAnimationFrame(() => requestAnimationFrame(() => done()))"
        )

    def all(self, selector: str) -> list[WebElement]:
        """The elements that a CSS selector finds."""
        return self._driver.find_elements(By.CSS_SELECTOR, selector)

    def one(self, selector: str) -> WebElement:
        """The first of them."""
        return self._driver.find_element(By.CSS_SELECTOR, selector)

    def text(self, selector: str) -> str:
        """The text of an element, seen or not, its spaces plain."""
        return " ".join(str(self.run("return arguments[0].textContent", self.one(selector))).split())

    def click(self, selector: str) -> None:
        """Scroll to an element and press it as a mouse does."""
        element = self.one(selector)
        self.run("arguments[0].scrollIntoView({block: 'center', behavior: 'instant'})", element)
        element.click()
        self.frames()

    def keys(self, *keys: str) -> None:
        """Type into whatever has the focus."""
        for key in keys:
            ActionChains(self._driver, duration=0).send_keys(key).perform()
        self.frames()

    def hover(self, element: WebElement, right: float, down: float) -> None:
        """Move the mouse to a place in an element, in pixels from its top left corner."""
        box = self.run("const b = arguments[0].getBoundingClientRect(); return [b.left, b.top]", element)
        place = {"type": "mouseMoved", "x": box[0] + right, "y": box[1] + down}
        self.command("Input.dispatchMouseEvent", place)
        self.frames()

    def wheel(self, element: WebElement, right: float, down: float, turn: float) -> None:
        """Turn the wheel over a place in an element."""
        box = self.run("const b = arguments[0].getBoundingClientRect(); return [b.left, b.top]", element)
        place = {"type": "mouseWheel", "x": box[0] + right, "y": box[1] + down, "deltaX": 0, "deltaY": turn}
        self.command("Input.dispatchMouseEvent", place)
        self.frames()

    def figures(self) -> list[tuple[str, str, str]]:
        """Every quoted figure: its path in audit.json, its value in full, and what is shown."""
        return [(path, value, " ".join(text.split())) for path, value, text in self.run(_FIGURES)]

    def pdf(self) -> bytes:
        """The page printed."""
        return base64.b64decode(self.command("Page.printToPDF", {"printBackground": True})["data"])

    def picture(self) -> bytes:
        """The page as it is seen, as PNG."""
        return base64.b64decode(self.command("Page.captureScreenshot")["data"])

    def complaints(self) -> list[str]:
        """What the console said since the page was opened."""
        log = self._driver.get_log("browser")  # type: ignore[no-untyped-call]
        return [str(entry["message"]) for entry in log]

    def requests(self) -> list[str]:
        """Every address that was asked for since the page was opened, but for the page itself and data in it."""
        log = self._driver.get_log("performance")  # type: ignore[no-untyped-call]
        messages = [json.loads(entry["message"])["message"] for entry in log]
        asked = [
            str(message["params"]["request"]["url"])
            for message in messages
            if message["method"] == "Network.requestWillBeSent"
        ]
        return [url for url in asked if not url.startswith(("file:", "data:", "about:"))]


@contextmanager
def chromium(profile: Path) -> Iterator[Page]:
    """A browser with a profile of its own; it is ended with the block."""
    options = ChromeOptions()
    options.binary_location = "/usr/bin/chromium"
    for flag in (*FLAGS, f"--user-data-dir={profile}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = Chrome(options=options, service=Service("/usr/bin/chromedriver"))
    try:
        driver.set_script_timeout(60)
        yield Page(driver)
    finally:
        driver.quit()
