"""Several backward passes in a step: as a cause, and in the table of buckets."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from gloo_job import COPY_US, LAUNCH_US, Host, case_of, ddp, lay_out
from stepscope.audit.buckets import bucket_table
from stepscope.audit.case import Case
from stepscope.audit.causes import accumulation_without_no_sync
from stepscope_reports import tables

MIB = 262_144
"""Elements of float32; a MiB takes 1 ms on the wire."""


def case(folder: Path, program: Callable[[Host], None]) -> Case:
    return case_of(folder, lay_out(program, per_element=1000 / MIB))


def accumulate(host: Host, *, synchronise: bool, step_between: bool = False) -> None:
    for micro in range(3):
        host.forward(2000)
        sent = [(2 * MIB, 1), (2 * MIB, 3)] if synchronise or micro == 2 else []
        ddp(host, [MIB] * 4, sent, node_us=1000)
        if step_between:
            host.update(500)
    host.update(1000)


def test_reducing_every_micro_batch_costs_what_no_sync_saves(tmp_path: Path) -> None:
    """Of 4 ms each, 2 040 us fall into backward; and twice two copies out remain, as the launches do."""
    broken = case(tmp_path, lambda host: accumulate(host, synchronise=True))
    (found,) = accumulation_without_no_sync.detect(broken)
    assert found.evidence[0] == "3 backward passes before one optimizer step, and each reduces 4.0 MiB"
    fixed = case(tmp_path, lambda host: accumulate(host, synchronise=False))
    assert broken.step_ms is not None
    assert fixed.step_ms is not None
    kept = 2 * 2 * (LAUNCH_US + COPY_US) / 1e3
    assert found.cost_ms == pytest.approx(broken.step_ms - fixed.step_ms - kept, abs=1e-3)


def test_accumulation_with_no_sync_is_no_fault(tmp_path: Path) -> None:
    assert (
        accumulation_without_no_sync.detect(case(tmp_path, lambda host: accumulate(host, synchronise=False)))
        == []
    )


def test_the_table_has_a_row_a_bucket_however_many_passes_of_a_step_reduce_it(tmp_path: Path) -> None:
    """Its times are those of a step with one pass; two ranks have a step each."""
    thrice = bucket_table(case(tmp_path, lambda host: accumulate(host, synchronise=True)).parts)
    assert [(row.bucket, row.passes, row.steps, row.bytes) for row in thrice] == [
        (0, 3, 2, 2 * 2**20),
        (1, 3, 2, 2 * 2**20),
    ]
    once = bucket_table(case(tmp_path, one_pass).parts)
    assert [row.passes for row in once] == [1, 1]
    for row, same in zip(thrice, once, strict=True):
        assert (row.ready_ms, row.launch_ms, row.start_ms) == (same.ready_ms, same.launch_ms, same.start_ms)
    lines = [str(line) for line in tables.buckets(thrice)]
    assert lines[-1] == "each in 3 backward passes of a step; times are of one pass"
    assert len(lines) == len(tables.buckets(once)) + 1


def one_pass(host: Host) -> None:
    host.forward(2000)
    ddp(host, [MIB] * 4, [(2 * MIB, 1), (2 * MIB, 3)], node_us=1000)
    host.update(1000)


def test_two_optimizers_that_step_in_turn_do_not_accumulate(tmp_path: Path) -> None:
    turns = case(tmp_path, lambda host: accumulate(host, synchronise=True, step_between=True))
    assert accumulation_without_no_sync.detect(turns) == []
