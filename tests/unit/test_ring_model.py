"""The ring that bandwidth is held against: fitted to a recording's own transfers."""

from __future__ import annotations

import pytest

from stepscope.audit.result import Collective
from stepscope.audit.ring import ring_models

MIB = 1 << 20


def transfer(size: int, wire: float | None, *, kind: str = "all_reduce", ranks: int | None = 4) -> Collective:
    return Collective(
        source="rank0.json",
        kind=kind,
        phase="backward",
        gradient=True,
        role="gradient",
        bytes=size,
        group_size=ranks,
        name=kind,
        start_ms=0.0,
        duration_ms=wire or 0.0,
        wire_ms=wire,
        exposed_ms=0.0,
    )


def ring(size: int, *, alpha: float = 0.05, rate: float = 10.0) -> float:
    """ms of an all-reduce among 4: six hops, and one and a half times the bytes at `rate` GB/s."""
    return 6 * alpha + 1.5 * size / (rate * 1e6)


def test_latency_and_rate_of_an_exact_ring_come_back() -> None:
    (model,) = ring_models([transfer(size * MIB, ring(size * MIB)) for size in (1, 4, 16, 64)], None)
    assert (model.kind, model.group_size, model.transfers) == ("all_reduce", 4, 4)
    assert (model.smallest_bytes, model.largest_bytes) == (MIB, 64 * MIB)
    assert model.alpha_ms == pytest.approx(0.05)
    assert model.gb_per_s == pytest.approx(10.0)


def test_sizes_too_much_alike_give_a_rate_and_no_latency() -> None:
    (model,) = ring_models([transfer(size * MIB, ring(size * MIB, alpha=0.0)) for size in (8, 16)], None)
    assert model.alpha_ms is None
    assert model.gb_per_s == pytest.approx(10.0)


def test_slow_repetitions_of_a_size_do_not_move_the_line() -> None:
    quick = [transfer(size * MIB, ring(size * MIB)) for size in (1, 4, 16, 64) for _ in range(3)]
    slow = [transfer(size * MIB, 3 * ring(size * MIB)) for size in (1, 4, 16, 64)]
    (model,) = ring_models([*slow, *quick], None)
    assert model.gb_per_s == pytest.approx(10.0)


def test_buckets_of_nearly_one_size_whose_times_are_noise_do_not_make_the_line() -> None:
    alike = [
        transfer(round(size * MIB), ring(round(4.5 * MIB)) + 1.1 * (4.5 - size))
        for size in (4.3, 4.4, 4.5, 4.6, 4.7)
    ]
    (model,) = ring_models([transfer(MIB, ring(MIB)), *alike], None)
    assert model.gb_per_s == pytest.approx(10.0, rel=0.1)


def test_each_kind_and_group_has_its_own_and_the_largest_traffic_comes_first() -> None:
    rows = [
        transfer(MIB, 1.0, kind="all_gather"),
        transfer(2 * MIB, 1.0),
        transfer(3 * MIB, 1.0, ranks=2),
    ]
    assert [(one.kind, one.group_size) for one in ring_models(rows, None)] == [
        ("all_reduce", 2),
        ("all_reduce", 4),
        ("all_gather", 4),
    ]


def test_a_collective_without_a_group_is_among_all_ranks() -> None:
    (model,) = ring_models([transfer(8 * MIB, 1.0, ranks=None)], 8)
    assert model.group_size == 8


def test_there_is_none_of_unpaired_transfers_of_one_rank_or_of_kinds_without_a_ring() -> None:
    unfit = [
        transfer(MIB, None),
        transfer(MIB, 1.0, ranks=1),
        transfer(MIB, 1.0, kind="all_to_all"),
        transfer(0, 1.0),
    ]
    assert ring_models(unfit, None) == []
