"""DeepSpeed 0.19.8's ZeRO 1 and 3 as two ranks recorded them over gloo: told by what they send, for nothing in a trace names it.

`tests/data/scripts/deepspeed_zero.py` with `--stage 1` and `--stage 3`, cut to two steps and to the args that are read.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from device_cases import case_of
from stepscope.audit.case import Case
from stepscope.audit.causes import find_causes
from stepscope.audit.causes.framework import DEEPSPEED, framework_of
from stepscope.audit.outcome import host_time
from stepscope.trace.classify import classify
from stepscope.trace.reader import read

TRACES = Path(__file__).parents[1] / "data" / "traces"
MODEL_BYTES = 4 * ((64 * 128 + 128) + (128 * 8 + 8))

SENT = {
    1: [
        ("all_gather", "parameter", "forward", 37_408),
        ("all_reduce", "gradient", "forward", 32_768),
        ("all_reduce", "gradient", "forward", 4_640),
        ("all_reduce", "metric", "forward", 4),
    ],
    3: [
        ("all_gather", "parameter", "forward", 32),
        ("all_gather", "parameter", "forward", 512),
        ("all_gather", "parameter", "forward", 4_096),
        ("all_gather", "parameter", "forward", 32_768),
        ("all_reduce", "metric", "forward", 8),
        ("reduce_scatter", "gradient", "backward", 4_128),
        ("reduce_scatter", "gradient", "backward", 32_768),
        ("reduce_scatter", "gradient", "forward", 512),
    ],
}
"""In a step: kind, role, phase and bytes. Stage 1 reduces once backward is over, stage 3 what filled no bucket in it."""


def recorded(stage: int, run: Mapping[str, Any] | None = None) -> Case:
    files = [TRACES / f"deepspeed_zero{stage}_rank{rank}.pt.trace.json.gz" for rank in (0, 1)]
    return case_of([classify(read(file)) for file in files], run)


@pytest.mark.parametrize("stage", [1, 3])
def test_every_steps_gradients_are_the_models_and_gathered_parameters_are_none(stage: int) -> None:
    for recording in recorded(stage).recordings:
        for step in (6, 7):
            ops = [op for op in recording.collectives if op.step == step]
            assert sorted((op.kind, op.role, op.phase.name.lower(), op.bytes) for op in ops) == sorted(
                SENT[stage]
            )
            assert sum(op.bytes or 0 for op in ops if op.role == "gradient") == MODEL_BYTES


@pytest.mark.parametrize(("stage", "causes"), [(1, ["reduced-outside-backward"]), (3, [])])
def test_it_is_told_of_its_own_configuration_and_not_of_the_norm_that_it_needs(
    stage: int, causes: list[str]
) -> None:
    case = recorded(stage)
    assert framework_of(case) == DEEPSPEED
    found = [
        one for one in find_causes(case)[0] if one.cause in ("reduced-outside-backward", "extra-collectives")
    ]
    assert [one.cause for one in found] == causes
    assert all('DeepSpeed\'s "zero_optimization": {"overlap_comm": true' in one.fix for one in found)


def test_what_the_host_took_without_the_profiler_is_not_estimated_where_no_reducer_is_known() -> None:
    assert host_time(recorded(3, run={"profiler_cost": {"unprofiled_ms": 10.0}})) == 1.0
