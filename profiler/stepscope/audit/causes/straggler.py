"""straggler: one rank is slower in forward, in backward or in the update, and all others wait for it in a collective.

What a collective lasts on the others is waiting then, not transfer. Priced by the replay with the rank as fast as the
median of the others. Backward is as long on all of them where they wait within it, so a rank's own time is compared.
"""

from __future__ import annotations

from stepscope.audit.case import Case
from stepscope.audit.causes import host_time, lateness
from stepscope.audit.result import Finding


def detect(case: Case) -> list[Finding]:
    """A finding for each phase in which one rank is slower than the others in most steps."""
    return lateness.findings(
        case,
        (host_time.FORWARD, host_time.BACKWARD, host_time.UPDATE),
        cause="straggler",
        fix=(
            "give the ranks equal work (sequence lengths, experts, layers), and look at that rank's machine: another job, "
            "a lower clock, OMP_NUM_THREADS; stepscope run --with-stack names the line"
        ),
        reference="https://github.com/pytorch/pytorch/issues/59433",
    )
