"""What torch-tb-profiler says of trace files, one JSON line a file; see `worker`.

A process of its own: whatever it does there ends there.
"""

from __future__ import annotations

import sys
import tempfile

from stepscope.second_opinion.worker import answer_each


def ask(file: str) -> dict[str, float]:
    """Overlap (a share) and communication (ms) of one file, summed over the steps of its distributed view."""
    from torch_tb_profiler.profiler.data import RunProfileData

    with tempfile.TemporaryDirectory() as scratch:
        steps = RunProfileData.parse("worker", "1", file, scratch).comm_overlap_costs
    communication = sum(step.communication for step in steps)
    overlap = sum(step.overlap for step in steps)
    return {
        "overlap": overlap / communication if communication else float("nan"),
        "communication_ms": communication / 1000,
    }


if __name__ == "__main__":
    answer_each(sys.argv[1:], ask)
