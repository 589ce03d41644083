"""Ranks laid side by side: pairing, waiting told from transfer, clocks."""

from __future__ import annotations

from pathlib import Path

import pytest

from build_trace import AUTOGRAD, TraceBuilder
from stepscope.audit.buckets import bus_factor
from stepscope.audit.build import audit
from stepscope.audit.result import Audit, Thresholds
from stepscope.ranks.clocks import fit_clocks
from stepscope.ranks.pairing import Pairing, pair
from stepscope.trace.classify import classify
from stepscope.trace.reader import read
from stepscope.trace.recording import Recording

ELEMENTS = 1 << 20
WORLD = 3


def rank_trace(rank: int, *, arrival: float = 300, host: str | None = None, clock: float = 0) -> TraceBuilder:
    """Backward from 100 to 200 us; one all-reduce that this rank joins at `arrival` and all leave at 500 us.

    clock: by how many us this rank's host is ahead.
    """
    trace = TraceBuilder(rank=rank, world_size=WORLD, base_ns=0)
    if host is not None:
        trace.header["host_name"] = host
    trace.step(5, clock, 1000)
    trace.backward("MmBackward0", clock + 60, 20)
    trace.kernel("gemm", launched=clock + 65, start=clock + 100, duration=90, thread=AUTOGRAD)
    trace.accumulate_grad(clock + 81, 25)
    trace.kernel("copy", launched=clock + 82, start=clock + 190, duration=10, thread=AUTOGRAD)
    launched, duration = clock + 90, 500 - arrival
    trace.collective(
        "allreduce",
        launched=launched,
        start=clock + arrival,
        duration=duration,
        elements=ELEMENTS,
        sequence=1,
    )
    trace.runtime("cudaStreamSynchronize", clock + 280, 220)
    return trace


def recorded(folder: Path, *traces: TraceBuilder) -> list[Recording]:
    return [classify(read(trace.write(folder / f"r{k}.json"))) for k, trace in enumerate(traces)]


def audited(folder: Path, *traces: TraceBuilder) -> Audit:
    return audit(recorded(folder, *traces))


@pytest.fixture
def straggling(tmp_path: Path) -> Audit:
    """Ranks 0 and 2 arrive at 300 us, rank 1 at 440."""
    return audited(tmp_path, rank_trace(0), rank_trace(1, arrival=440), rank_trace(2))


def test_wire_is_the_shortest_duration_and_the_rest_is_waiting(straggling: Audit) -> None:
    assert [(c.rank, c.wait_ms, c.wire_ms) for c in straggling.collectives] == [
        (0, 0.14, 0.06),
        (1, 0.0, 0.06),
        (2, 0.14, 0.06),
    ]


def test_bus_bandwidth_is_bytes_over_wire_times_the_factor(straggling: Audit) -> None:
    expected = 4 * ELEMENTS / 60e-6 / 1e9 * 2 * (WORLD - 1) / WORLD
    assert straggling.collectives[0].bus_gb_per_s == pytest.approx(expected)


@pytest.mark.parametrize(
    ("kind", "factor"),
    [
        ("all_reduce", 1.5),
        ("reduce_scatter", 0.75),
        ("all_gather", 0.75),
        ("all_to_all", 0.75),
        ("broadcast", 1.0),
    ],
)
def test_the_bus_factor_is_that_of_nccl_tests(kind: str, factor: float) -> None:
    assert bus_factor(kind, 4) == factor


def test_exposed_waiting_is_the_peers_and_the_floor_counts_transfer_alone(straggling: Audit) -> None:
    waiting, late, _ = (rank.steps[0] for rank in straggling.ranks)
    assert waiting.waterfall is not None
    assert late.waterfall is not None
    assert (waiting.waterfall.peer_wait_ms, late.waterfall.peer_wait_ms) == (0.14, 0.0)
    assert waiting.grad is not None
    assert (waiting.grad.exposed_ms, waiting.grad.wire_exposed_ms) == (0.2, 0.06)
    assert waiting.grad.floor_ms == pytest.approx(0.06), "ready at 200 us, 60 us of transfer"


def test_the_cost_is_the_transfers_and_its_reason_that_most_of_it_is_waiting(tmp_path: Path) -> None:
    recordings = recorded(tmp_path, rank_trace(0), rank_trace(1, arrival=440), rank_trace(2))
    verdict = audit(recordings, Thresholds(cost_share=0.05)).verdict
    assert (verdict.cost_share, verdict.label, verdict.reason) == (0.06, "comm-bound", "waiting")


def test_a_straggler_neither_raises_nor_lowers_the_overlap_of_the_wire(tmp_path: Path) -> None:
    def overlap(arrival: float) -> float | None:
        traces = [rank_trace(0, arrival=150), rank_trace(1, arrival=arrival), rank_trace(2, arrival=150)]
        return audited(tmp_path, *traces).verdict.overlap_backward_wire

    assert overlap(440) == overlap(460) == 0.0
    assert overlap(150) == pytest.approx(50 / 350), "the transfer itself begins at 150 us, under backward"


def test_the_rank_that_arrives_last_is_named_with_how_often_and_how_late(straggling: Audit) -> None:
    assert straggling.stragglers == [
        {"rank": 1, "last_share": 1.0, "collectives": 1, "lateness_ms": 0.14, "total_ms": 0.14}
    ]


def sizes(pairing: Pairing) -> list[int]:
    return [len(one.members) for one in pairing.paired]


def test_a_collective_that_one_rank_lacks_is_reported_and_shifts_nothing(tmp_path: Path) -> None:
    traces = [rank_trace(rank) for rank in range(WORLD)]
    for trace in traces[:2]:
        trace.collective("allgather", launched=700, start=710, duration=10, elements=7, sequence=2)
    pairing = pair(recorded(tmp_path, *traces))
    assert sizes(pairing) == [3]
    assert pairing.mispaired == ("all_gather of 7 elements in step 5: 1 on rank 0, 1 on rank 1, 0 on rank 2",)


def test_without_numbers_order_within_kind_and_size_pairs(tmp_path: Path) -> None:
    traces = []
    for rank in range(2):
        trace = TraceBuilder(rank=rank, world_size=2)
        trace.step(5, 0, 1000)
        big, small = (100, 300) if rank == 0 else (300, 100)
        trace.collective(
            "allreduce", launched=big - 9, start=big, duration=50 + rank, elements=64, described=False
        )
        trace.collective(
            "broadcast", launched=small - 9, start=small, duration=50, elements=64, described=False
        )
        traces.append(trace)
    found = pair(recorded(tmp_path, *traces))
    assert sorted(one.kind for one in found.paired) == ["all_reduce", "broadcast"]
    assert found.mispaired == ()
    (reduce,) = (one for one in found.paired if one.synchronising)
    assert (reduce.kind, reduce.wire, reduce.last) == ("all_reduce", 50_000, 0)


def test_a_broadcast_has_no_common_end_and_is_not_split(tmp_path: Path) -> None:
    traces = []
    for rank in range(2):
        trace = TraceBuilder(rank=rank, world_size=2)
        trace.step(5, 0, 1000)
        trace.collective("broadcast", launched=90, start=100, duration=50 + rank, elements=64, sequence=4)
        traces.append(trace)
    assert [c.wire_ms for c in audited(tmp_path, *traces).collectives] == [None, None]


def test_clocks_a_second_apart_change_no_split_and_are_found(tmp_path: Path) -> None:
    second = 1e6
    traces = [
        rank_trace(0, host="a"),
        rank_trace(1, host="b", arrival=440, clock=second),
        rank_trace(2, host="b", clock=second),
    ]
    recordings = recorded(tmp_path, *traces)
    (clock,) = fit_clocks(recordings, pair(recordings).paired)
    assert (clock.host, clock.offset, clock.residual, clock.pairs) == ("b", 1e9, 0.0, 1)
    found = audit(recordings)
    assert [c.wait_ms for c in found.collectives] == [0.14, 0.0, 0.14]
    assert found.clocks[0]["offset_ms"] == 1000.0
    assert codes(found) == ["clocks-apart"]
    assert found.verdict.confidence == (
        "medium: the clock of b is 1,000 ms ahead of the first host's: taken out by the ends of 1 collectives, "
        "0.000 ms are left"
    )


def test_ranks_of_one_host_share_its_clock(tmp_path: Path) -> None:
    recordings = recorded(tmp_path, rank_trace(0, host="a"), rank_trace(1, host="a"))
    assert fit_clocks(recordings, pair(recordings).paired) == []


def codes(found: Audit) -> list[str]:
    return [warning.code for warning in found.warnings]


def assert_unpaired(found: Audit, code: str, why: str, *, void: bool = False) -> None:
    """Nothing is said of one rank from another's file; the answer is unsure, or none where they can't be of one run (void)."""
    assert [c.wire_ms for c in found.collectives] == [None] * len(found.collectives)
    assert found.stragglers == []
    assert code in codes(found)
    if void:
        assert found.verdict.label == "inconclusive"
        assert why in found.verdict.reason
        return
    assert found.verdict.confidence is not None
    assert found.verdict.confidence.startswith("low: ")
    assert why in found.verdict.confidence


def test_all_ranks_of_a_run_leave_no_doubt(straggling: Audit) -> None:
    assert codes(straggling) == []
    assert straggling.verdict.confidence == "medium: one valid step only"


def test_of_one_rank_alone_nothing_is_split_and_it_is_said(tmp_path: Path) -> None:
    found = audited(tmp_path, rank_trace(0))
    assert [c.wire_ms for c in found.collectives] == [None]
    assert codes(found) == ["ranks-missing"]
    assert found.verdict.confidence == (
        "medium: 1 of 3 ranks is here: waiting for the other ranks can't be told from transfer"
    )


def test_where_a_rank_is_missing_the_rest_is_paired_and_what_may_hide_in_it_is_said(tmp_path: Path) -> None:
    found = audited(tmp_path, rank_trace(0), rank_trace(1, arrival=440))
    assert [c.wire_ms for c in found.collectives] == [0.06, 0.06]
    assert codes(found) == ["ranks-missing"]
    assert found.verdict.confidence is not None
    assert found.verdict.confidence.startswith("medium: 2 of 3 ranks are here")


def test_a_rank_that_was_recorded_twice_is_paired_with_nobody(tmp_path: Path) -> None:
    assert_unpaired(
        audited(tmp_path, rank_trace(0), rank_trace(0)), "same-rank-twice", "rank 0 is in 2 files"
    )


def test_a_file_that_does_not_say_its_rank_is_paired_with_nobody(tmp_path: Path) -> None:
    nameless = rank_trace(1)
    del nameless.header["distributedInfo"]["rank"]
    found = audited(tmp_path, rank_trace(0), nameless)
    assert_unpaired(found, "rank-unknown", "1 of 2 files do not say which rank they are")


@pytest.mark.parametrize(
    ("field", "value", "why"),
    [
        ("world_size", 2, "different world sizes (2, 3)"),
        ("backend", "gloo", "different backends (gloo, nccl)"),
        ("rank", 3, "rank 3 can't be of a run of 3 ranks"),
    ],
)
def test_files_whose_headers_are_not_of_one_run_are_never_paired(
    field: str, value: object, why: str, tmp_path: Path
) -> None:
    other = rank_trace(1)
    other.header["distributedInfo"][field] = value
    assert_unpaired(audited(tmp_path, rank_trace(0), other), "different-runs", why, void=True)


@pytest.mark.parametrize(("hosts", "apart"), [(("a", "a"), 2), (("a", "b"), 600)])
def test_ranks_recorded_at_other_times_are_of_different_runs(
    hosts: tuple[str, str], apart: int, tmp_path: Path
) -> None:
    """Same job, same collectives and numbers; a clock that two ranks share, or any two clocks, can't be that far apart."""
    here, there = rank_trace(0, host=hosts[0]), rank_trace(1, host=hosts[1])
    there.header["baseTimeNanoseconds"] = apart * 10**9
    found = audited(tmp_path, here, there)
    assert_unpaired(found, "different-runs", f"ended {apart}.0 s apart")


def test_a_collective_that_one_rank_lacks_is_left_out_and_lowers_the_confidence(tmp_path: Path) -> None:
    traces = [rank_trace(rank) for rank in range(WORLD)]
    for trace in traces[:2]:
        trace.collective("allgather", launched=700, start=710, duration=10, elements=7, sequence=2)
    found = audited(tmp_path, *traces)
    assert [(c.kind, c.wire_ms) for c in found.collectives if c.rank == 0] == [
        ("all_reduce", 0.2),
        ("all_gather", None),
    ]
    assert codes(found) == ["mispaired"]
    assert found.verdict.confidence is not None
    assert found.verdict.confidence.startswith("medium: all_gather of 7 elements in step 5: 1 on rank 0")


def test_where_nothing_pairs_a_few_disagreements_are_told_and_the_rest_counted(tmp_path: Path) -> None:
    """Each rank has eight collectives that the other knows nothing of, and not the one that both would share."""
    traces = [rank_trace(rank) for rank in range(WORLD)]
    for rank, trace in enumerate(traces):
        trace.events = [event for event in trace.events if "Collective name" not in event.get("args", {})]
        for k in range(8):
            at = 700 + 20 * k
            trace.collective(
                "allreduce", launched=at, start=at + 9, duration=9, elements=100, sequence=10 * rank + k
            )
    pairing = pair(recorded(tmp_path, *traces))
    assert pairing.paired == ()
    assert [(doubt.code, doubt.grave) for doubt in pairing.doubts] == [("mispaired", True)] * 6
    assert pairing.doubts[0].message.startswith(
        "all_reduce of 100 elements in step 5: 1 on rank 0, 0 on rank 1"
    )
    assert pairing.doubts[-1].message == "the ranks disagree about 19 more kinds of collectives"


def eight_real_ranks(shared: Path) -> list[Recording]:
    files = sorted((shared / "traces/param_dlrm_v100_8ranks").iterdir())
    return [classify(read(file)) for file in files]


def test_every_collective_of_eight_real_ranks_is_paired(shared: Path) -> None:
    recordings = eight_real_ranks(shared)
    pairing = pair(recordings)
    assert sizes(pairing) == [8] * 8
    assert sum(len(recording.collectives) for recording in recordings) == 8 * 8
    assert (pairing.mispaired, pairing.doubts) == ((), ())


def test_the_wait_of_eight_real_ranks_is_told_from_the_wire(shared: Path) -> None:
    """In order of launch: how long the transfer was, who arrived last, how long the first to arrive waited; us.

    One host, one clock: who arrived last is also who started last.
    """
    recordings = eight_real_ranks(shared)
    found = []
    for one in sorted(pair(recordings).paired, key=lambda one: one.members[0].launch):
        starts = {index: recordings[index].base_ns + op.start for index, op in one.members.items()}
        assert abs(starts[one.last] - max(starts.values())) <= 15_000, (
            "the file's times are whole microseconds"
        )
        longest = max(op.end - op.start for op in one.members.values())
        found.append((one.kind, one.wire / 1e3, one.last, (longest - one.wire) / 1e3))
    assert found == [
        ("all_to_all", 10, 7, 7625),
        ("all_to_all", 8, 7, 1100),
        ("all_to_all", 7, 7, 169),
        ("all_to_all", 7, 7, 126),
        ("all_reduce", 86, 7, 221),
        ("all_to_all", 10, 5, 535),
        ("all_reduce", 20, 5, 582),
        ("all_reduce", 69, 4, 883),
    ]


def test_the_last_to_arrive_at_the_first_of_eight_real_ranks_collectives_is_found(shared: Path) -> None:
    """Rank 7 starts its part 7.6 ms after rank 1; every rank waited until then, to the microsecond."""
    found = audit(eight_real_ranks(shared))
    assert len(found.collectives) == 64
    first = {c.rank: c for rank in range(8) for c in [next(c for c in found.collectives if c.rank == rank)]}
    assert {rank: (c.wait_ms, c.wire_ms) for rank, c in first.items()} == {
        0: (2.136, 0.01),
        1: (7.625, 0.01),
        2: (0.508, 0.01),
        3: (6.122, 0.01),
        4: (4.872, 0.01),
        5: (4.669, 0.01),
        6: (0.504, 0.01),
        7: (0.0, 0.01),
    }
