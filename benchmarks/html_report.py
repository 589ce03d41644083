"""How soon the HTML report of a large job is painted, and whether its timeline keeps up with the wheel.

8 ranks x 3 steps of a 200-layer model with a bucket a layer, or an audit.json that is named. Chromium opens the page several
times, then zooms in and out and moves over all ranks. Prints the size of the file, the median of the first contentful paint, and
the longest task of the page's thread while loading and while zooming.

    python -m benchmarks.html_report [AUDIT.json] [--opens 5] [--turns 60]
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

import msgspec

from stepscope.audit.result import Audit
from stepscope_reports.html import render

sys.path.insert(
    0, str(Path(__file__).resolve().parents[1] / "tests")
)  # the browser and the audit that the tests use

from headless import Page, chromium
from html_audits import large

_WATCH = """
window.longTasks = [];
new PerformanceObserver((list) => {
  for (const entry of list.getEntries()) window.longTasks.push(entry.duration);
}).observe({ type: "longtask", buffered: true });
"""
_PAINT = "return performance.getEntriesByName('first-contentful-paint')[0].startTime"
_LONGEST = "const longest = Math.max(0, ...window.longTasks); window.longTasks = []; return longest"


def main() -> None:
    """Render, open, zoom, print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "audit", nargs="?", type=Path, help="an audit.json; a large one is made up without it"
    )
    parser.add_argument("--opens", type=int, default=5, metavar="N")
    parser.add_argument("--turns", type=int, default=60, metavar="N", help="of the wheel, in and as many out")
    args = parser.parse_args()
    audit = msgspec.json.decode(args.audit.read_bytes(), type=Audit) if args.audit else large()
    with tempfile.TemporaryDirectory(prefix="html-report-") as folder:
        file = Path(folder) / "report.html"
        started = time.perf_counter()
        with file.open("w", encoding="utf-8") as stream:
            render(audit, stream)
        print(f"rendered in                   {time.perf_counter() - started:8.2f} s")
        print(f"size                          {file.stat().st_size / 1e6:8.2f} MB")
        with chromium(Path(folder) / "profile") as page:
            _measure(page, file, args.opens, args.turns)


def _measure(page: Page, file: Path, opens: int, turns: int) -> None:
    page.screen(1280, 800)
    page.command("Page.addScriptToEvaluateOnNewDocument", {"source": _WATCH})
    paints, loads = [], []
    for _ in range(opens):
        page.open(file)
        page.frames()
        paints.append(float(page.run(_PAINT)))
        loads.append(float(page.run(_LONGEST)))
    print(f"first contentful paint        {median(paints):8.0f} ms, median of {opens}")
    print(f"longest task while loading    {max(loads):8.0f} ms")
    stage = page.one("#stage")
    page.run(
        "arguments[0].scrollIntoView({block: 'start', behavior: 'instant'}); arguments[0].focus({preventScroll: true})",
        stage,
    )
    page.run(_LONGEST)
    for turn in [-120.0] * turns + [120.0] * turns:
        page.wheel(stage, 700, 200, turn)
    for key in ["+"] * 5 + ["0"]:
        page.keys(key)
    print(f"longest task while zooming    {float(page.run(_LONGEST)):8.0f} ms (0: none over 50 ms)")


if __name__ == "__main__":
    main()
