"""The same kernels take longer while a collective runs.

On a GPU only: collectives take multiprocessors from compute there, and a setting gives them fewer. The threads of a CPU run
share cores, which its figures state as contention and no setting of the job changes.
"""

from __future__ import annotations

import numpy as np

from stepscope.audit.beside import contentions
from stepscope.audit.case import Case
from stepscope.audit.causes.finding import Description, milliseconds, priced
from stepscope.audit.result import Finding
from stepscope.replay.change import Change
from stepscope.replay.graph import StepGraph


def detect(case: Case) -> list[Finding]:
    """Kernels of equal name and length, alone and beside a collective."""
    slowed = {
        index: one
        for index, one in contentions(case).items()
        if case.recordings[index].device in ("cuda", "rocm")
    }
    lost, beside = (
        sum(float(getattr(one, name).sum()) for one in slowed.values()) for name in ("lost", "beside")
    )
    if lost <= 0:
        return []

    def changed(graph: StepGraph) -> Change | None:
        factors = {
            (index, int(one.row[k])): max(0.0, 1.0 - float(one.lost[k]) / int(one.took[k]))
            for index, one in slowed.items()
            for k in np.flatnonzero(one.step == graph.step)
        }
        return Change(activities=factors) if factors else None

    kernels = sum(len(one.row) for one in slowed.values())
    steps = sum(len(np.unique(one.step)) for one in slowed.values())

    description = Description(
        cause="contention",
        confidence="medium: kernels were compared by their names and neighbours; shapes and clocks may differ too",
        evidence=[
            f"beside a collective the same kernels took {1 / max(1e-9, 1 - lost / beside):.2f} times as long as alone: "
            f"{milliseconds(lost / steps)} a step and rank more, of {milliseconds(beside / steps)} beside collectives "
            f"({kernels} kernels compared)"
        ],
        fix="give collectives fewer multiprocessors: NCCL_MAX_CTAS=8 (or NCCL_MAX_NCHANNELS; try 4 to 16), and check that their "
        "bus bandwidth does not fall more than compute gains",
        reference="NVIDIA/nccl issues 338 and 1433; "
        "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html (NCCL_MAX_CTAS)",
    )
    return priced(case, case.price(changed), description)
