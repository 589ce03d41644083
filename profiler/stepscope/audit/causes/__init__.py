"""Why overlap is broken: one module a cause, found through the entry-point group `stepscope.causes`.

docs/causes.md describes them for users. A detector is a function `detect(case: Case) -> list[Finding]`. It names a cause only
with a price, by replay, and with its evidence; a presence without a price is no finding. A third party adds one by an entry
point of its own; one that fails is left out with a warning.
"""

from __future__ import annotations

from stepscope.audit.case import Case
from stepscope.audit.result import Finding, Warning
from stepscope.errors import InputError
from stepscope.plugins import blamed, installed

GROUP = "stepscope.causes"


def find_causes(case: Case) -> tuple[list[Finding], list[Warning]]:
    """The findings of all installed detectors, the costliest first, and which of other packages failed."""
    found: list[Finding] = []
    failed: list[Warning] = []
    for point in installed(GROUP).values():
        try:
            with blamed(point):
                found += point.load()(case)
        except InputError as error:
            failed.append(Warning(code="cause-failed", message=f"left out: {error}"))
    return sorted(found, key=lambda finding: (-(finding.cost_ms or 0.0), finding.cause)), failed
