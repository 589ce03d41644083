"""The ranks' meeting in the job's store, each rank a thread with a connection of its own."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from torch.distributed import TCPStore  # type: ignore[attr-defined]  # its stubs leave it out

from stepscope.capture.meeting import Absent, Meeting, Store

Kept = list[tuple[int, bytes]]


@pytest.fixture
def store() -> Iterator[Store]:
    yield TCPStore("127.0.0.1", 0, is_master=True, timeout=timedelta(seconds=10))


def together(store: Store, size: int, take_part: Callable[[Meeting, int], str], *, of: int = 0) -> list[str]:
    """What each of `size` ranks says of a meeting of `of` (as many as come, unless said)."""
    said = [""] * size

    def one(rank: int) -> None:
        meeting = Meeting(store.clone(), "here", rank, of or size, patience=1.0)
        try:
            said[rank] = take_part(meeting, rank)
        except Absent as reason:
            said[rank] = f"absent: {reason}"

    threads = [threading.Thread(target=one, args=(rank,)) for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    return said


def test_rank_0_is_handed_what_every_rank_brought_in_order_and_its_word_reaches_all(
    store: Store,
) -> None:
    kept: Kept = []

    def take_part(meeting: Meeting, rank: int) -> str:
        meeting.gather(bytes([rank]) * rank, lambda *one: kept.append(one))
        word = meeting.announce("thanks" if rank == 0 else "unheard")
        meeting.close()
        return word

    assert together(store, 4, take_part) == ["thanks"] * 4
    assert kept == [(0, b""), (1, b"\1"), (2, b"\2\2"), (3, b"\3\3\3")]


def test_what_is_longer_than_the_store_takes_at_once_comes_whole(store: Store) -> None:
    long = bytes(range(256)) * (9 << 12)
    kept: Kept = []

    def take_part(meeting: Meeting, rank: int) -> str:
        meeting.gather(long if rank else b"", lambda *one: kept.append(one))
        return "went"

    together(store, 2, take_part)
    assert len(long) > 8 << 20
    assert kept[1] == (1, long)


def test_a_meeting_leaves_nothing_in_the_store(store: Store) -> None:
    before = store.num_keys()

    def take_part(meeting: Meeting, _rank: int) -> str:
        meeting.gather(b"something", lambda *_one: None)
        meeting.announce("over")
        meeting.close()
        return "went"

    together(store, 3, take_part)
    assert store.num_keys() == before


def test_a_rank_that_does_not_come_is_named_to_all_and_nobody_waits_on(store: Store) -> None:
    def take_part(meeting: Meeting, _rank: int) -> str:
        meeting.gather(b"something", lambda *_one: None)
        return "went"

    reason = "absent: ranks 2, 3 did not come within 1 s"
    assert together(store, 2, take_part, of=4) == [reason, reason]


def test_what_rank_0_cannot_keep_is_told_to_all(store: Store, tmp_path: Path) -> None:
    def take_part(meeting: Meeting, _rank: int) -> str:
        meeting.gather(b"something", lambda *_one: (tmp_path / "none" / "folder").mkdir())
        return "went"

    reason = "absent: rank 0 cannot keep it: No such file or directory"
    assert together(store, 3, take_part) == [reason] * 3


def test_a_single_process_meets_itself() -> None:
    kept: Kept = []
    meeting = Meeting(None, "here", 0, 1)
    meeting.gather(b"mine", lambda *one: kept.append(one))
    assert meeting.announce("over") == "over"
    meeting.close()
    assert kept == [(0, b"mine")]


def test_ranks_without_a_store_are_told_so() -> None:
    with pytest.raises(Absent, match="have no store to meet in"):
        Meeting(None, "here", 1, 2).gather(b"", lambda *_one: None)
