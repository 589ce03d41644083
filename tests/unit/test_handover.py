"""What a rank does with its trace at the end of a gathered run, where not all goes well."""

from __future__ import annotations

import threading
from pathlib import Path

import msgspec
import pytest
from torch.distributed import TCPStore  # type: ignore[attr-defined]  # its stubs leave it out

from build_trace import TraceBuilder
from stepscope.capture.config import CaptureConfig
from stepscope.capture.handover import hand_over
from stepscope.capture.metadata import RankMetadata
from stepscope.trace.reader import read


@pytest.fixture(autouse=True)
def _store(monkeypatch: pytest.MonkeyPatch) -> object:
    """The job's store, where torchrun would have it."""
    store = TCPStore("127.0.0.1", 0, is_master=True)
    monkeypatch.setenv("TORCHELASTIC_USE_AGENT_STORE", "True")
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    monkeypatch.setenv("MASTER_PORT", str(store.port))
    return store


def rank(number: int, folder: Path, *, trace: bool = True) -> tuple[CaptureConfig, RankMetadata]:
    """A rank that has ended, with run directory and traces of its own."""
    local, name = folder / f"local{number}", f"rank{number}.1.pt.trace.json.gz"
    (folder / f"node{number}").mkdir()
    local.mkdir()
    if trace:
        builder = TraceBuilder(rank=number, world_size=2)
        builder.step(5, 0, 600)
        builder.kernel("gemm", launched=40, start=100, duration=100)
        builder.write(local / name)
    config = CaptureConfig(run_dir=str(folder / f"node{number}"), trace_folder=str(local), gather=True)
    metadata = RankMetadata(
        rank=number,
        local_rank=0,
        world_size=2,
        host=f"node{number}",
        pid=1,
        launch_id=f"launch{number}",
        state="ended",
        written_ns=1,
        steps_seen=9,
        device="cpu",
        backend="gloo",
        trace=name if trace else None,
    )
    return config, metadata


def both(*ranks: tuple[CaptureConfig, RankMetadata]) -> list[str | None]:
    said: list[str | None] = ["nothing"] * len(ranks)

    def one(place: int) -> None:
        said[place] = hand_over(*ranks[place], patience=2.0)

    threads = [threading.Thread(target=one, args=(place,)) for place in range(len(ranks))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    return said


def test_the_trace_goes_and_its_columns_are_with_rank_0(tmp_path: Path) -> None:
    assert both(rank(0, tmp_path), rank(1, tmp_path)) == [None, None]
    assert read(tmp_path / "node0" / "rank1.1.columns").header.rank == 1
    assert list(tmp_path.glob("local*/*")) == []
    at_home, at_rank_0 = (
        msgspec.json.decode((tmp_path / node / "rank1.meta.json").read_bytes(), type=RankMetadata)
        for node in ("node1", "node0")
    )
    assert at_home == at_rank_0
    assert (at_home.gathered, at_home.trace) == (True, "rank1.1.columns")


def test_a_rank_that_does_not_come_costs_nobody_a_trace(tmp_path: Path) -> None:
    reason = "not gathered, so the traces are kept: rank 1 did not come within 2 s"
    assert both(rank(0, tmp_path)) == [reason]
    assert [file.name for file in tmp_path.glob("local0/*")] == ["rank0.1.pt.trace.json.gz"]
    assert list(tmp_path.glob("node0/*")) == []


def test_without_rank_0_nobody_waits_for_ever(tmp_path: Path) -> None:
    assert both(rank(1, tmp_path)) == ["not gathered, so the traces are kept: rank 0 did not come"]
    assert [file.name for file in tmp_path.glob("local1/*")] == ["rank1.1.pt.trace.json.gz"]


def test_a_rank_that_recorded_nothing_holds_nobody_up(tmp_path: Path) -> None:
    assert both(rank(0, tmp_path), rank(1, tmp_path, trace=False)) == [None, None]
    assert [file.name for file in tmp_path.glob("node0/*.columns")] == ["rank0.1.columns"]


def test_a_trace_that_cannot_be_read_stays_where_it_is_and_the_rest_is_gathered(tmp_path: Path) -> None:
    broken = rank(1, tmp_path)
    (tmp_path / "local1" / "rank1.1.pt.trace.json.gz").write_bytes(b"no trace")
    assert both(rank(0, tmp_path), broken) == [None, None]
    assert [file.name for file in tmp_path.glob("local*/*")] == ["rank1.1.pt.trace.json.gz"]
    told = msgspec.json.decode((tmp_path / "node0" / "rank1.meta.json").read_bytes(), type=RankMetadata)
    assert told.trace is None
    assert "rank1.1.pt.trace.json.gz" in str(told.problem)
