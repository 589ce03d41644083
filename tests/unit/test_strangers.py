"""Files that can't be ranks of one run are told by what they reduce, and legitimate differences between ranks are not."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from build_trace import AUTOGRAD, TraceBuilder
from stepscope.audit.build import audit
from stepscope.audit.result import Audit
from stepscope.cli.main import main
from stepscope.errors import InputError
from stepscope.ranks.pairing import pair
from stepscope.ranks.strangers import strangers
from stepscope.trace.classify import classify
from stepscope.trace.reader import read
from stepscope.trace.recording import Recording

SMALL, LARGE = (300_000, 1_000_000), (7_000_000, 9_000_000)
"""Elements of the buckets of two models."""


def trace_of(
    rank: int,
    buckets: Sequence[int],
    *,
    world: int = 2,
    step: int = 5,
    groups: Sequence[Sequence[int]] | None = None,
    named: int | None = 0,
    base_ns: int = 0,
) -> TraceBuilder:
    """A step whose backward reduces the buckets in process group `named` of the groups (default: one of all ranks)."""
    trace = TraceBuilder(rank=rank, world_size=world, base_ns=base_ns)
    groups = [list(range(world))] if groups is None else groups
    described: list[dict[str, Any]] = [
        {"pg_name": str(k), "pg_size": len(ranks), "ranks": list(ranks)} for k, ranks in enumerate(groups)
    ]
    trace.header["distributedInfo"]["pg_config"] = described
    trace.step(step, 0, 2000)
    trace.backward("MmBackward0", 60, 400)
    trace.kernel("gemm", launched=65, start=100, duration=300, thread=AUTOGRAD)
    for k, elements in enumerate(buckets):
        trace.accumulate_grad(100 + 40 * k, 30)
        trace.collective(
            "allreduce",
            launched=110 + 40 * k,
            start=420 + 40 * k,
            duration=30,
            elements=elements,
            group=str(named),
            group_ranks=groups[named or 0],
        )
    if named is None:  # as gloo and older releases record it
        for event in trace.events:
            for key in ("Process Group Name", "Process Group Ranks", "Group size"):
                event.get("args", {}).pop(key, None)
    return trace


def recorded(folder: Path, *traces: TraceBuilder) -> list[Recording]:
    return [classify(read(trace.write(folder / f"r{k}.json"))) for k, trace in enumerate(traces)]


def audited(folder: Path, *traces: TraceBuilder) -> Audit:
    return audit(recorded(folder, *traces))


@pytest.mark.parametrize("named", [0, None])
def test_ranks_that_reduce_other_gradients_in_the_same_step_are_refused(
    named: int | None, tmp_path: Path
) -> None:
    with pytest.raises(InputError) as caught:
        audited(tmp_path, trace_of(0, SMALL, named=named), trace_of(1, LARGE, named=named))
    assert str(caught.value) == (
        f"{tmp_path}/r0.json and {tmp_path}/r1.json have no gradient collective in common (all_reduce of 1,000,000 elements "
        "against 9,000,000, for one), so they are not the ranks of one run; audit each run or window by itself, or lay two "
        "beside each other with `stepscope compare`"
    )


def test_two_runs_given_to_one_audit_are_refused_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, buckets in (("a", SMALL), ("b", LARGE)):
        (tmp_path / name).mkdir()
        for rank in range(2):
            trace_of(rank, buckets).write(tmp_path / name / f"rank{rank}.pt.trace.json")
    assert main(["audit", str(tmp_path / "a"), str(tmp_path / "b")]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.count("\n") == 1
    assert (
        f"{tmp_path}/a/rank0.pt.trace.json and {tmp_path}/b/rank1.pt.trace.json have no gradient" in said.err
    )


def test_of_other_steps_the_verdict_is_inconclusive_and_says_so(tmp_path: Path) -> None:
    """Two models that train in turn, as a GAN's, may each have been caught in another step of one run."""
    verdict = audited(tmp_path, trace_of(0, SMALL), trace_of(1, LARGE, step=6)).verdict
    assert verdict.label == "inconclusive"
    assert verdict.reason.endswith("they are of different runs or windows; audit them one by one")


def test_one_rank_in_two_windows_that_share_nothing_gets_no_verdict(tmp_path: Path) -> None:
    found = audited(tmp_path, trace_of(0, SMALL), trace_of(0, LARGE))
    assert found.verdict.label == "inconclusive"
    assert [warning.code for warning in found.warnings][:2] == ["different-runs", "same-rank-twice"]


def test_a_run_at_another_time_that_shares_some_of_its_collectives_gets_no_verdict(tmp_path: Path) -> None:
    """A deeper model has buckets of the same sizes, and more of them."""
    there = trace_of(1, (*SMALL, 5_000_000), base_ns=120 * 10**9)
    verdict = audited(tmp_path, trace_of(0, SMALL), there).verdict
    assert verdict.label == "inconclusive"
    assert (
        "ended 120.0 s apart, and others are on some ranks only: they are of different runs" in verdict.reason
    )


STAGES = ([0, 1, 2, 3], [0, 1], [2, 3])
"""The default group, and the data-parallel groups of two pipeline stages."""


@pytest.mark.parametrize(
    ("of_rank_0", "of_rank_2"),
    [
        pytest.param({"groups": STAGES, "named": 1}, {"groups": STAGES, "named": 2}, id="pipeline stages"),
        pytest.param(
            {"groups": STAGES[:2], "named": None}, {"groups": STAGES[:2], "named": None}, id="unnamed"
        ),
        pytest.param(
            {"groups": [[0], range(4)], "named": None}, {"groups": [[2], range(4)], "named": None}, id="alone"
        ),
    ],
)
def test_ranks_of_other_groups_may_reduce_what_they_like(
    of_rank_0: dict[str, Any], of_rank_2: dict[str, Any], tmp_path: Path
) -> None:
    first, third = trace_of(0, SMALL, world=4, **of_rank_0), trace_of(2, LARGE, world=4, **of_rank_2)
    assert strangers(recorded(tmp_path, first, third)) is None


def test_within_a_stage_of_a_pipeline_it_is_told_too(tmp_path: Path) -> None:
    first = trace_of(0, SMALL, world=4, groups=STAGES, named=1)
    second = trace_of(1, LARGE, world=4, groups=STAGES, named=1)
    with pytest.raises(InputError, match="have no gradient collective in common"):
        strangers(recorded(tmp_path, first, second))


@pytest.mark.parametrize(
    "config", [[], [{"pg_name": "0", "pg_size": 2}, {"pg_name": "1", "ranks": "[0, ..., 7]"}]]
)
def test_without_an_account_of_the_groups_nothing_is_told(config: list[Any], tmp_path: Path) -> None:
    traces = [trace_of(0, SMALL, world=4), trace_of(1, LARGE, world=4)]
    for trace in traces:
        trace.header["distributedInfo"]["pg_config"] = config
    assert strangers(recorded(tmp_path, *traces)) is None


def test_a_file_that_was_cut_off_has_fewer_collectives_and_is_none(tmp_path: Path) -> None:
    assert strangers(recorded(tmp_path, trace_of(0, SMALL), trace_of(1, SMALL[:1]), trace_of(1, ()))) is None


def test_a_gradient_that_was_not_recognised_on_one_rank_is_still_the_same_collective(tmp_path: Path) -> None:
    """Rank 1's launches lie outside of backward, so that what they carry is not known."""
    other = trace_of(1, SMALL)
    other.events = [event for event in other.events if "Backward" not in event["name"]]
    assert strangers(recorded(tmp_path, trace_of(0, SMALL), other)) is None


def test_the_ranks_of_real_jobs_are_no_strangers(shared: Path) -> None:
    files = sorted((shared / "traces/param_dlrm_v100_8ranks").iterdir())
    assert strangers([classify(read(file)) for file in files]) is None


def pipeline(folder: Path, stages: Sequence[Sequence[int]]) -> list[Recording]:
    """Four ranks in two stages, each with a process group of its own beside that of all, recorded as gloo does."""
    groups = ([0, 1, 2, 3], [0, 1], [2, 3])
    return recorded(
        folder,
        *(trace_of(rank, stages[rank // 2], world=4, groups=groups, named=None) for rank in range(4)),
    )


def test_stages_of_other_sizes_are_paired_each_within_its_group(tmp_path: Path) -> None:
    found = pair(pipeline(tmp_path, (SMALL, LARGE)))
    assert not found.mispaired
    assert [sorted(one.members) for one in found.paired] == [[0, 1], [0, 1], [2, 3], [2, 3]]


def test_stages_of_equal_sizes_are_not_paired_and_get_no_label(tmp_path: Path) -> None:
    recordings = pipeline(tmp_path, (SMALL, SMALL))
    found = pair(recordings)
    assert (found.paired, found.mispaired) == ((), ())
    verdict = audit(recordings).verdict
    assert verdict.label == "inconclusive"
    assert "8 collectives do not say which process group they are of" in verdict.reason
