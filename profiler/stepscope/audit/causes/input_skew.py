"""input-skew: one rank gets its batch later than the others, which then wait for it in the first collective.

Priced by the replay with that rank's time before forward as long as the median of the others. Input that is late on every
rank is no skew: it holds up the step, and not the collectives.
"""

from __future__ import annotations

from stepscope.audit.case import Case
from stepscope.audit.causes import host_time, lateness
from stepscope.audit.result import Finding


def detect(case: Case) -> list[Finding]:
    """One finding, if one rank is later at forward in most steps."""
    return lateness.findings(
        case,
        (host_time.INPUT,),
        cause="input-skew",
        fix=(
            "DataLoader(..., num_workers=N, prefetch_factor=4, persistent_workers=True) on that rank, so that the batch is "
            "there in time; no rank-0-only work (logging, validation, checkpoints) before forward"
        ),
        reference="https://github.com/traceopt-ai/traceml/issues/252",
    )
