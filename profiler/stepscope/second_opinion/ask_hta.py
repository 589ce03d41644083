"""What HolisticTraceAnalysis says of trace files, one JSON line a file; see `worker`.

A process of its own: whatever it does there ends there. Each file is given on its own, so that one that it can't read takes
no other down.
"""

from __future__ import annotations

import sys

from stepscope.second_opinion.worker import answer_each


def ask(file: str) -> dict[str, float]:
    """Overlap (a share) and compute time (ms) of one file."""
    from hta.trace_analysis import TraceAnalysis

    analysis = TraceAnalysis(trace_files={0: file}, trace_dir="")
    overlap = analysis.get_comm_comp_overlap(visualize=False)
    answer = {"overlap": float(overlap["comp_comm_overlap_pctg"].iloc[0]) / 100}
    breakdown = analysis.get_temporal_breakdown(visualize=False)
    return {**answer, "compute_ms": float(breakdown["compute_time(us)"].iloc[0]) / 1000}


if __name__ == "__main__":
    answer_each(sys.argv[1:], ask)
