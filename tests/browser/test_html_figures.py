"""Every figure of the page is the audit's: read back out of the browser and held against audit.json."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from selenium.webdriver.common.keys import Keys

import html_audits
from headless import Page
from stepscope.audit.result import Audit
from stepscope.cli.audit import audit_paths
from stepscope_reports import figures

Open = Callable[[Audit], Page]

_UNITS = {"%": 0.01, "B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "": 1, "ms": 1, "GB/s": 1}


def plain(audit: Audit) -> Any:
    """audit.json, read back; what it leaves out because it is the default is there again."""
    return _with_defaults(msgspec.json.decode(msgspec.json.encode(audit), type=Audit))


def _with_defaults(value: Any) -> Any:
    if isinstance(value, msgspec.Struct):
        return {name: _with_defaults(getattr(value, name)) for name in value.__struct_fields__}
    return [_with_defaults(one) for one in value] if isinstance(value, list | tuple) else value


def at(data: Any, pointer: str) -> Any:
    for key in pointer.split("/")[1:]:
        data = data[int(key)] if isinstance(data, list) else data[key]
    return data


def rounds_to(text: str, value: float) -> bool:
    """Whether the value, rounded to the digits shown, is the text."""
    match = re.fullmatch(r"(-?[\d,]+(?:\.(\d+))?)\s?(%|[KMG]iB|B|ms|GB/s|)", text)
    assert match, text
    unit = _UNITS[match[3]]
    half = 0.5 * 10.0 ** -len(match[2] or "") * unit
    return abs(float(match[1].replace(",", "")) * unit - value) <= half * (1 + 1e-9)


def check(page: Page, audit: Audit) -> set[str]:
    """Hold every quoted figure against the audit; the paths that were seen."""
    data = plain(audit)
    quoted = page.figures()
    for path, value, text in quoted:
        assert float(value) == at(data, path), path
        assert rounds_to(text, float(value)), (path, value, text)
    return {path for path, _, _ in quoted}


def test_every_figure_shown_is_the_one_in_the_audit(opened: Open) -> None:
    audit = html_audits.full()
    seen = check(opened(audit), audit)
    step = ("step", "wall_ms", "comm_ms", "exposed_ms", "cost_ms", "grad/comm_ms", "grad/floor_ms")
    bucket = (
        "bucket",
        "bytes",
        "parameters",
        "ready_ms",
        "launch_ms",
        "start_ms",
        "duration_ms",
        "hidden_share",
    )
    assert seen >= {
        *(f"/ranks/{rank}/steps/{place}/{name}" for rank in (0, 1) for place in (1, 2, 3) for name in step),
        *(f"/buckets/{place}/{name}" for place in (0, 1) for name in (*bucket, "exposed_ms")),
        *(f"/stragglers/0/{name}" for name in plain(audit)["stragglers"][0]),
        *(f"/clocks/0/{name}" for name in ("offset_ms", "drift_ppm", "residual_ms", "pairs")),
        *(f"/ring_models/0/{name}" for name in ("group_size", "transfers", "smallest_bytes", "gb_per_s")),
        *(
            f"/verdict/{name}"
            for name in ("cost_share", "comm_share", "overlap_backward", "overlap_backward_wire")
        ),
        *(f"/verdict/{name}/{end}" for name in ("cost_share_ci", "rank_spread") for end in (0, 1)),
        *(f"/ranks/{rank}/totals/comm_ms" for rank in (0, 1)),
        "/findings/0/cost_ms",
        *(f"/findings/0/cost_ms_ci/{end}" for end in (0, 1)),
    }


def test_sums_over_the_audit_are_those_that_all_reports_share(opened: Open) -> None:
    audit = html_audits.full()
    page = opened(audit)
    mean = figures.average([step for _, step in figures.counted(audit)])
    assert mean is not None
    shown = page.run(
        "return [...document.querySelectorAll('data[data-figure]')].map(d => [d.dataset.figure, d.value, d.textContent])"
    )
    values = {name: float(value) for name, value, _ in shown}
    for name in (
        "wall",
        "compute",
        "comm",
        "grad_comm",
        "grad_exposed",
        "floor",
        "excess",
        "exposed",
        "cost",
    ):
        assert values[f"average.{name}"] == getattr(mean, name)
    for name, value in mean.waterfall.items():
        assert values.get(f"average.waterfall.{name}", 0.0) == value
    assert all(rounds_to(" ".join(text.split()), float(value)) for _, value, text in shown)


def test_the_timeline_tells_of_every_collective_what_the_audit_says(opened: Open) -> None:
    audit = html_audits.full()
    page, data = opened(audit), plain(audit)
    seen: set[int] = set()
    for place in range(len(page.all("#step option"))):
        page.run(
            "const s = document.getElementById('step'); s.value = arguments[0]; s.dispatchEvent(new Event('change'))",
            str(place),
        )
        page.frames()
        page.run("document.getElementById('stage').focus()")
        for down in (0, 1):
            page.keys(Keys.HOME if not down else Keys.ARROW_DOWN, Keys.HOME)
            for _ in range(3):
                seen.add(_check_facts(page, data))
                page.keys(Keys.ARROW_RIGHT)
    assert seen == set(range(len(audit.collectives)))


_OWN_STEP = ("ready_ms", "launch_ms", "start_ms")


def _check_facts(page: Page, data: Any) -> int:
    """Hold what is told of the chosen collective against the audit; its place there."""
    rows = page.run(
        "return [...document.querySelectorAll('#facts data')].map(d => [d.dataset.path, d.value, d.textContent])"
    )
    index = int(rows[0][0].split("/")[2])
    one = data["collectives"][index]
    begin = next(
        step["start_ms"]
        for rank in data["ranks"]
        if rank["source"] == one["source"]
        for step in rank["steps"]
        if step["step"] == one["step"]
    )
    for path, value, text in rows:
        assert float(value) == at(data, path)
        name = path.split("/")[3]
        shown = float(value) - begin if name in _OWN_STEP else float(value)
        assert rounds_to(text.removesuffix(" in"), shown), (path, text)
    told = {path.split("/")[3] for path, _, _ in rows}
    measured = (
        "bytes",
        "seq",
        "duration_ms",
        "wait_ms",
        "wire_ms",
        "hidden_backward_ms",
        "exposed_ms",
        *_OWN_STEP,
    )
    assert told >= {name for name in measured if one[name] is not None}
    return index


def test_a_real_trace_of_eight_gpus_is_shown_as_it_was_audited(opened: Open, shared: Path) -> None:
    audit = audit_paths([str(shared / "traces" / "param_dlrm_v100_8ranks")])
    page = opened(audit)
    seen = check(page, audit)
    assert {f"/ranks/{rank}/steps/0/cost_ms" for rank in range(8)} <= seen
    assert page.complaints() == []
    assert len(page.all("#stage .rank")) == 8


def test_more_buckets_than_a_screen_holds_fold_away_and_none_is_lost(opened: Open) -> None:
    page = opened(html_audits.large())
    assert page.text("#buckets .rest summary") == "96 more buckets"
    assert page.text("#buckets .rest .note") == "and 80 more; audit.json has all"


@pytest.mark.parametrize(
    ("text", "value", "same"),
    [("4.8 %", 0.0479, True), ("4.8 %", 0.0486, False), ("1.5 MiB", 1.5 * 2**20, True)],
)
def test_the_check_itself_tells_right_rounding_from_wrong(text: str, value: float, same: bool) -> None:
    assert rounds_to(text, value) == same
