"""The page: what the template is given, and what makes the file safe to open.

Text out of traces is escaped by the template, data by `embedded`; the page's own policy allows the scripts and styles that are
named by their hash and nothing else, the network least of all.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Sequence
from functools import partial
from importlib.resources import files
from pathlib import PurePath
from typing import Any

import jinja2
from markupsafe import Markup

from stepscope.audit.result import Audit, Finding
from stepscope.units import decimals, percent, plural
from stepscope_reports import charts, figures, tables, terminal
from stepscope_reports.charts import style
from stepscope_reports.html import sections
from stepscope_reports.html.definitions import DEFINITIONS
from stepscope_reports.html.quoted import Quoted
from stepscope_reports.html.timeline import drawn_ranks, timeline
from stepscope_reports.plain import clean, common_folder
from stepscope_reports.run import run_of, sentences

_SCRIPTS = ("theme.js", "drawing.js", "timeline.js", "print.js")
_HALF = 500
"""Pixels of a picture that stands beside a table."""
_WAITING_CAUSES = ("straggler", "input-skew")
"""Causes that show as waiting, not as exposed transfer."""


def page(audit: Audit) -> str:
    """The whole file as text."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("stepscope_reports.html"),
        autoescape=True,
        finalize=_finalized,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    css = _asset("report.css") + _recoloured()
    script = "".join(map(_asset, _SCRIPTS))
    drawn = timeline(audit)
    quoted = Quoted(audit)
    return environment.get_template("report.html").render(
        audit=audit,
        q=quoted,
        verdict=_verdict(audit),
        policy=_policy(css, script),
        css=Markup(css),
        script=Markup(script),
        timeline=drawn,
        gained=sections.gained(audit),
        gain_remark=tables.gain_remark(audit),
        waited=_sentence(tables.WAITED),
        other_compute=drawn is not None and any(view["other"] for view in drawn["views"]),
        timeline_data=embedded(drawn) if drawn else None,
        pictures={name: _picture(audit, name) for name in charts.PICTURES},
        findings=[_finding(audit, finding, drawn) for finding in audit.findings],
        define=DEFINITIONS,
        headline=terminal.headline(audit.verdict),
        title=_title(audit),
        measured=_measured(audit),
        profiler_cost=_profiler_cost(audit),
        left_out=tables.left_out(audit),
        warnings=_warnings(audit),
        replayed=figures.replayed(audit),
        average=sections.average(audit),
        waterfall=sections.waterfall(audit),
        buckets=sections.buckets(audit, quoted),
        steps=sections.steps(audit, quoted),
        stragglers=sections.stragglers(audit, quoted),
        clocks=sections.clocks(audit, quoted),
        ring_models=sections.ring_models(audit, quoted),
        files=sections.files(audit, quoted),
        other_traffic=sections.other_traffic(audit),
        percent=percent,
    )


def _finalized(value: Any) -> Any:
    """Text without control characters; markup as it is."""
    return clean(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def embedded(data: Any) -> Markup:
    """Data as JSON that can stand in a script element: nothing in it can end the element or a line of the script."""
    text = json.dumps(data, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return Markup(text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e"))


def _asset(name: str) -> str:
    return (files(__package__) / "assets" / name).read_text("utf-8")


def _policy(css: str, script: str) -> str:
    def digest(text: str) -> str:
        return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()

    return (
        f"default-src 'none'; style-src 'sha256-{digest(css)}'; script-src 'sha256-{digest(script)}'; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )


def _recoloured() -> str:
    """Rules that give the pictures' colours to the page's theme."""
    variables = {
        style.INK: "ink",
        style.MUTED: "muted",
        style.LINE: "line",
        style.HIDDEN: "hidden",
        style.WAITING: "waiting",
        style.EXPOSED: "exposed",
        style.NEUTRAL: "neutral",
        style.FORWARD: "forward",
        style.BACKWARD: "backward",
        style.OPTIMIZER: "optimizer",
        "white": "page",
    }
    rules = [
        f'.picture [{attribute}="{colour}"]{{{attribute}:var(--{name})}}'
        for colour, name in variables.items()
        for attribute in ("fill", "stroke")
    ]
    return "\n".join(rules) + "\n"


def _picture(audit: Audit, name: str) -> tuple[Markup, Markup] | None:
    """A picture for a wide page and for a narrow one."""
    draw = charts.PICTURES[name]
    wide, narrow = draw(audit, _HALF if name == "waterfall" else charts.WIDE), draw(audit, charts.NARROW)
    return None if wide is None or narrow is None else (Markup(charts.svg(wide)), Markup(charts.svg(narrow)))


def _title(audit: Audit) -> str:
    run = run_of(audit)
    if run is not None and run.script:
        return PurePath(run.script).name
    folder = common_folder([rank.source for rank in audit.ranks])
    return PurePath(folder).name if folder else plural(len(audit.ranks), "file")


def _measured(audit: Audit) -> list[str]:
    """Sentences on what was recorded and how."""
    run = run_of(audit)
    return [_sentence(text) for text in (terminal.machines(audit.ranks), *(sentences(run) if run else []))]


def _sentence(text: str) -> str:
    """A capital at the start, but for names of modules and files, and one full stop at the end."""
    named = any(mark in text.split(" ", 1)[0] for mark in "_./(")
    return (text if named else text[:1].upper() + text[1:]).rstrip(".") + "."


def _profiler_cost(audit: Audit) -> str | None:
    """What recording cost the run, as far as it was measured: the last that a run says of itself."""
    run = run_of(audit)
    return _sentence(sentences(run)[-1]) if run is not None and run.profiler_cost is not None else None


def _warnings(audit: Audit) -> list[tuple[str, str, list[str]]]:
    """Code, message and the files that share it."""
    sources: dict[tuple[str, str], list[str]] = {}
    for row in audit.warnings:
        sources.setdefault((row.code, row.message), []).extend([row.source] if row.source else [])
    return [(code, message, files) for (code, message), files in sources.items()]


def _verdict(audit: Audit) -> dict[str, Any]:
    """The first screen: where the cost stands on its scale, what a fix brings, and how sure that is."""
    verdict = audit.verdict
    mean = figures.average([step for _, step in figures.counted(audit)])
    best = next((one for one in audit.findings if one.cost_ms is not None), None)
    return {
        "class": verdict.label.replace(" ", "-"),
        "meaning": _sentence(verdict.explanation.removeprefix(f"{verdict.label}: ")),
        "wall": sections.derived("average.wall", mean.wall, f"{mean.wall:,.{decimals((mean.wall,))}f}")
        if mean
        else None,
        "scale": _scale(audit),
        "best": audit.findings.index(best) if best else None,
        "advised": best is not None and verdict.next_step == f"{best.cause}: {best.fix}",
        "best_share": percent(best.cost_ms / mean.wall)
        if best and best.cost_ms is not None and mean
        else None,
        "counted": len(figures.counted(audit)),
        "steps": sum(len(rank.steps) for rank in audit.ranks),
    }


def _scale(audit: Audit) -> dict[str, float] | None:
    """Places on a scale of 1000 from no cost to the end: the cost, its interval, the threshold."""
    verdict = audit.verdict
    if verdict.cost_share is None:
        return None
    low, high = verdict.cost_share_ci or (verdict.cost_share, verdict.cost_share)
    end = max(2 * verdict.thresholds.cost_share, 1.15 * high)
    place = partial(_place, end=end)
    return {
        "cost": place(verdict.cost_share),
        "low": place(low),
        "high": place(high),
        "threshold": place(verdict.thresholds.cost_share),
        "end": end,
    }


def _place(share: float, end: float) -> float:
    return round(1000 * share / end, 1)


def _finding(audit: Audit, finding: Finding, drawn: dict[str, Any] | None) -> dict[str, Any]:
    """A finding, and where in the timeline to look at it."""
    reference = finding.reference or ""
    return {
        "finding": finding,
        "title": finding.cause.replace("-", " "),
        "link": reference if reference.startswith("https://") else None,
        "step": _shown_step(finding.steps, drawn),
        "ranks": ",".join(str(k) for k, rank in enumerate(drawn_ranks(audit)) if rank.rank in finding.ranks),
        "measure": "wait_ms" if finding.cause in _WAITING_CAUSES else "exposed_ms",
    }


def _shown_step(numbers: Sequence[int], drawn: dict[str, Any] | None) -> int | None:
    """The place of the first of the steps that the timeline has; None where it has none of them."""
    if drawn is None:
        return None
    places = [k for k, step in enumerate(drawn["steps"]) if not numbers or step["number"] in numbers]
    if drawn["start"] in places:
        return int(drawn["start"])
    return places[0] if places else None
