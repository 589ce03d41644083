"""Why overlap is broken: one module a cause, found through the entry-point group `stepscope.causes`.

docs/causes.md describes them for users. A detector is a function `detect(case: Case) -> list[Finding]`. It names a cause only
with a price, by replay, and with its evidence; a presence without a price is no finding. A third party adds one by an entry
point of its own.
"""

from __future__ import annotations

from importlib.metadata import entry_points

from stepscope.audit.case import Case
from stepscope.audit.result import Finding

GROUP = "stepscope.causes"


def find_causes(case: Case) -> list[Finding]:
    """The findings of all installed detectors, the costliest first."""
    found = [finding for point in entry_points(group=GROUP) for finding in point.load()(case)]
    return sorted(found, key=lambda finding: (-(finding.cost_ms or 0.0), finding.cause))
