"""Where the ranks of a job meet to hand something to rank 0, apart from everything that the script itself communicates.

They meet in the store through which the job found itself, over a connection of their own: it needs no process group, which the
script may have left by then, no further port, and no connection from every rank to every other one. Nobody waits without end: who
is missing when patience is over is named, and all go their own ways.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import torch.distributed as dist

_torch: Any = dist  # whose stubs do not export its stores
Store = Any

PATIENCE_SECONDS = 120.0
"""How long a rank waits for the others at the end of a script: one of them may be writing a last checkpoint."""

_TURN_SECONDS = 60.0
"""How long a rank that is there may take to send."""
_QUICK_SECONDS = 5.0
"""What a rank's turn takes at the most when all goes well: the others wait so long for each rank before them."""
_CONNECT_SECONDS = 10
_CHUNK_BYTES = 4 << 20
"""torch's TCPStore takes no value over 8 MiB (TCPStoreLibUvBackend.cpp)."""
_FIRST_LOOK_SECONDS, _LONGEST_LOOK_SECONDS = 0.002, 0.2
_FAILED = b"!"


class Absent(Exception):
    """Not all came, or what they meet in is gone: says who or why, in half a sentence."""


def job_store() -> Store | None:
    """The store through which the ranks of this job found each other, over a connection of its own; None where there is none.

    torchrun's own outlives the script's process group. Under another launcher it is the process group's, while that is there.
    """
    if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True":
        with _told():
            store = _torch.TCPStore(
                os.environ["MASTER_ADDR"],
                int(os.environ["MASTER_PORT"]),
                is_master=False,
                timeout=timedelta(seconds=_CONNECT_SECONDS),
            )
            return _torch.PrefixStore(f"stepscope/{os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}", store)
    if not (dist.is_available() and dist.is_initialized()):
        return None
    store = _torch.distributed_c10d._get_default_store()
    if not hasattr(store, "clone"):  # an older torch
        return None
    with _told():
        return _torch.PrefixStore("stepscope", store.clone())


class Meeting:
    """One meeting of `size` ranks; all call the same methods in the same order, under the same `name`.

    Every method raises Absent, on all ranks that came, where one of them did not come within `patience` seconds.
    """

    def __init__(
        self, store: Store | None, name: str, rank: int, size: int, patience: float = PATIENCE_SECONDS
    ) -> None:
        self._store = None if store is None else _torch.PrefixStore(name, store)
        self._rank, self._size, self._patience = rank, size, patience

    def gather(self, payload: bytes, keep: Callable[[int, bytes], None]) -> None:
        """Hand `payload` to rank 0, where `keep` is given every rank's, in order and one at a time.

        An OSError of `keep` is told to all as Absent.
        """
        if self._size == 1:
            keep(0, payload)
            return
        with _told():
            if self._rank != 0:
                self._send(payload)
                return
            try:
                self._call_the_roll()
                keep(0, payload)
                for rank in range(1, self._size):
                    keep(rank, self._receive(rank))
            except (Absent, OSError) as error:
                reason = error if isinstance(error, Absent) else f"rank 0 cannot keep it: {error.strerror}"
                self._there.set("word", _FAILED.decode() + str(reason))
                raise Absent(str(reason)) from error

    def announce(self, word: str) -> str:
        """Give rank 0's word to all: each rank returns it."""
        if self._size == 1:
            return word
        with _told():
            if self._rank == 0:
                self._there.set("word", word)
                return word
            self._await("word", self._whole_seconds, "rank 0 did not answer")
            return self._word()

    def close(self) -> None:
        """Rank 0 leaves last, and takes away what the meeting left in the store."""
        if self._size == 1:
            return
        with _told():
            if self._rank != 0:
                if self._there.add("left", 1) == self._size - 1:
                    self._there.set("all-left", "")
                return
            self._await("all-left", self._patience, "not all ranks said that they were done")
            for key in ("word", "open", "left", "all-left", "arrived", "all-here"):
                self._there.delete_key(key)
            for rank in range(1, self._size):
                self._there.delete_key(f"here/{rank}")
                self._there.delete_key(f"ask/{rank}")

    @property
    def _there(self) -> Store:
        if self._store is None:
            raise Absent("the ranks of this job have no store to meet in")
        return self._store

    @property
    def _whole_seconds(self) -> float:
        return self._patience + self._size * _QUICK_SECONDS

    def _call_the_roll(self) -> None:
        try:
            self._await("all-here", self._patience, "")
        except Absent:
            missing = [str(rank) for rank in range(1, self._size) if not self._there.check([f"here/{rank}"])]
            who = f"rank {missing[0]}" if len(missing) == 1 else f"ranks {', '.join(missing[:8])}"
            raise Absent(f"{who} did not come within {self._patience:.0f} s") from None
        self._there.set("open", "")

    def _receive(self, rank: int) -> bytes:
        self._there.set(f"ask/{rank}", "")
        self._await(f"length/{rank}", _TURN_SECONDS, f"rank {rank} left before it sent")
        length = int(self._taken(f"length/{rank}"))
        return b"".join(self._taken(f"part/{rank}/{start}") for start in range(0, length, _CHUNK_BYTES))

    def _taken(self, key: str) -> bytes:
        value = bytes(self._there.get(key))
        self._there.delete_key(key)
        return value

    def _send(self, payload: bytes) -> None:
        rank, store = self._rank, self._there
        store.set(f"here/{rank}", "")
        if store.add("arrived", 1) == self._size - 1:
            store.set("all-here", "")
        # rank 0 may come a patience after us, and waits as long for others
        self._await("open", 2 * self._patience, "rank 0 did not come")
        self._await(f"ask/{rank}", self._whole_seconds, "rank 0 did not ask")
        for start in range(0, len(payload), _CHUNK_BYTES):
            store.set(f"part/{rank}/{start}", payload[start : start + _CHUNK_BYTES])
        store.set(f"length/{rank}", str(len(payload)))

    def _await(self, key: str, seconds: float, otherwise: str) -> None:
        """Until the key is there. Looked for again and again: torch's own wait warns, in several lines, when it is in vain."""
        deadline, pause = time.monotonic() + seconds, _FIRST_LOOK_SECONDS
        while not self._there.check([key]):
            if self._rank != 0 and self._there.check(["word"]):
                self._word()
            if time.monotonic() > deadline:
                raise Absent(otherwise)
            time.sleep(pause)
            pause = min(2 * pause, _LONGEST_LOOK_SECONDS)

    def _word(self) -> str:
        """What rank 0 said; Absent where that is why nothing comes of the meeting."""
        word = bytes(self._there.get("word"))
        if word.startswith(_FAILED):
            raise Absent(word.removeprefix(_FAILED).decode())
        return word.decode()


@contextmanager
def _told() -> Iterator[None]:
    """torch's stores raise RuntimeError, by other names since 2.1, for a peer that is gone."""
    try:
        yield
    except RuntimeError as error:
        first_line = str(error).partition("\n")[0]
        raise Absent(f"the job's store does not answer ({first_line[:80]})") from error
