"""A second process that decodes pieces of a large trace.

Decoding makes Python objects and so keeps to one processor, however many threads there are. The helper takes every
piece that it has time for and hands its columns back at the end. It knows plain pieces only: at anything else (damage,
times that need care) it gives up, and the file is read again without it.
"""

from __future__ import annotations

import pickle
import subprocess
import sys
from contextlib import suppress
from queue import Full, Queue
from threading import Thread
from typing import IO

import msgspec

from stepscope.trace.gather import Gathered, Gatherer
from stepscope.trace.rows import RowDecoder
from stepscope.trace.times import InexactTimes

_LENGTH_BYTES = 8
_WAITING = 4
"""Pieces that wait for the helper beside the one on its way."""


class HelperFailed(Exception):
    """The helper could not start, or met something that it leaves to others."""


class Helper:
    """The parent's end. To be closed."""

    def __init__(self) -> None:
        self._waiting: Queue[bytes | None] = Queue(_WAITING)
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", __name__],  # -P: a queue.py in the user's folder is not ours
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
            )
        except OSError as error:
            raise HelperFailed from error
        assert self._process.stdin is not None
        self._writer = Thread(
            target=self._write, args=(self._process.stdin,), name="stepscope-helper", daemon=True
        )
        self._writer.start()

    def offer(self, text: bytes) -> bool:
        """Whether the helper takes the piece."""
        try:
            self._waiting.put_nowait(text)
        except Full:
            return False
        return True

    def gathered(self) -> Gathered:
        """What the helper made of its pieces, in their order; HelperFailed where it could not read one."""
        assert self._process.stdout is not None
        self._end_writing()
        answer = self._process.stdout.read()
        if self._process.wait() != 0:
            raise HelperFailed
        found: Gathered = pickle.loads(answer)
        return found

    def close(self) -> None:
        """End the process, whatever it is doing."""
        self._process.kill()
        self._end_writing()
        self._writer.join()
        self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()

    def _end_writing(self) -> None:
        """Behind what waits already; the writer may have ended before, with the process."""
        while self._writer.is_alive():
            try:
                self._waiting.put(None, timeout=0.05)
            except Full:
                continue
            return

    def _write(self, pipe: IO[bytes]) -> None:
        with suppress(BrokenPipeError), pipe:  # a process that ended tells why by its exit code
            while (text := self._waiting.get()) is not None:
                pipe.write(len(text).to_bytes(_LENGTH_BYTES))
                pipe.write(text)
                pipe.flush()


def main() -> int:
    """The helper's end: pieces from standard input, what was gathered to standard output."""
    decoder = RowDecoder()
    gatherer = Gatherer(decoder)
    try:
        while length := sys.stdin.buffer.read(_LENGTH_BYTES):
            gatherer.add(decoder.decode(sys.stdin.buffer.read(int.from_bytes(length))))
    except (msgspec.DecodeError, InexactTimes):
        return 1
    pickle.dump(gatherer.gathered, sys.stdout.buffer, protocol=pickle.HIGHEST_PROTOCOL)
    return 0


if __name__ == "__main__":
    sys.exit(main())
