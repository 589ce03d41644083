"""Totals of real GPU traces against the references that a second, brute-force implementation gave."""

from __future__ import annotations

from pathlib import Path

import pytest

from stepscope.audit.build import audit
from stepscope.audit.result import Step, Totals
from stepscope.trace.classify import classify
from stepscope.trace.reader import read

TOLERANCE = 1e-4

REFERENCES = {
    "hta_resnet_ddp_a100/nccl_data.json.gz": (46.8765, 115.6558, 75.5987, 7.3170, 0.0, 39.5595),
    "hta_dlrm_a100_legacy/control.json.gz": (163.535, 281.336, 176.759, 44.600, 31.014, 87.921),
    "param_dlrm_v100_8ranks/worker0_step_12.1694128201545.pt.trace.json.gz": (
        5.798,
        1.034,
        0.503,
        0.228,
        0.033,
        5.537,
    ),
    "param_dlrm_v100_8ranks/worker2_step_12.1694128201554.pt.trace.json.gz": (
        3.492,
        1.068,
        0.535,
        0.243,
        0.032,
        3.217,
    ),
    "param_dlrm_v100_8ranks/worker4_step_12.1694128201547.pt.trace.json.gz": (
        6.587,
        1.126,
        0.566,
        0.004,
        0.033,
        6.550,
    ),
    "param_dlrm_v100_8ranks/worker7_step_12.1694128201553.pt.trace.json.gz": (
        1.746,
        1.059,
        0.527,
        0.166,
        0.0,
        1.580,
    ),
    "hta_minitoy_mi250_no_comm/mi250_minitoy_train_ROCm6_2_kineto.json.gz": (
        0.0,
        0.1109,
        0.0485,
        0.0,
        0.0,
        0.0,
    ),
}
"""ms: comm, compute, backward compute, hidden by backward, hidden by other compute, exposed."""

FIGURES = (
    "comm_ms",
    "compute_ms",
    "backward_compute_ms",
    "hidden_backward_ms",
    "hidden_other_ms",
    "exposed_ms",
)


@pytest.mark.parametrize("file", REFERENCES)
def test_totals_are_the_references_to_a_hundredth_of_a_percent(shared: Path, file: str) -> None:
    totals = audit([classify(read(shared / "traces" / file))]).ranks[0].totals
    found = tuple(getattr(totals, figure) for figure in FIGURES)
    # The references are printed to four decimals at most: half of their last digit is theirs, not ours.
    assert found == pytest.approx(REFERENCES[file], rel=TOLERANCE, abs=5e-5)


@pytest.mark.parametrize("file", REFERENCES)
def test_hidden_and_exposed_add_up_to_communication(shared: Path, file: str) -> None:
    (rank,) = audit([classify(read(shared / "traces" / file))]).ranks
    parts_of_file: list[Totals | Step] = [rank.totals, *rank.steps]
    for part in parts_of_file:
        parts = (part.hidden_backward_ms, part.hidden_other_ms, part.exposed_ms)
        assert round(sum(p or 0.0 for p in parts), 6) == part.comm_ms


def test_a_starved_gpu_is_called_host_bound_and_the_network_is_not_blamed(shared: Path) -> None:
    verdict = audit([classify(read(shared / "traces/hta_resnet_ddp_a100/nccl_data.json.gz"))]).verdict
    assert verdict.host_bound
    assert "not the network's fault" in verdict.explanation


@pytest.mark.parametrize(
    "file",
    [
        "hta_resnet_ddp_world1/rank-0.Apr_03_18_51_38.1102.pt.trace.json.gz",
        "hta_minitoy_mi250_no_comm/mi250_minitoy_train_ROCm6_2_kineto.json.gz",
    ],
)
def test_without_communication_there_is_no_percentage(shared: Path, file: str) -> None:
    verdict = audit([classify(read(shared / "traces" / file))]).verdict
    assert verdict.label == "no communication"
    assert (verdict.overlap_backward, verdict.cost_share, verdict.comm_share) == (None, None, None)
    assert "%" not in verdict.explanation


def test_annotations_without_compute_are_inconclusive_with_the_reason(shared: Path) -> None:
    folder = shared / "traces/hta_gloo_annotations_only"
    (file,) = folder.iterdir()
    found = audit([classify(read(file))])
    assert found.verdict.label == "inconclusive"
    assert "no backward" in found.verdict.reason
    assert found.ranks[0].totals.collectives == 10


TRACES = [*REFERENCES, "param_dlrm_v100_8ranks"]


@pytest.mark.parametrize("name", TRACES)
def test_the_waterfall_of_every_step_adds_up_and_leaves_nothing_unnamed(shared: Path, name: str) -> None:
    path = shared / "traces" / name
    files = sorted(path.iterdir()) if path.is_dir() else [path]
    for rank in audit([classify(read(file)) for file in files]).ranks:
        for step in rank.steps:
            if step.waterfall is None:
                continue
            parts = {name: getattr(step.waterfall, name) or 0.0 for name in step.waterfall.__struct_fields__}
            assert sum(parts.values()) == pytest.approx(step.exposed_ms, abs=1e-5)
            assert parts["unattributed_ms"] <= 0.02 * step.exposed_ms
