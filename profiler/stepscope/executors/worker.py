"""A worker's end of the pool: files to read from standard input, answers to standard output."""

from __future__ import annotations

import sys
from typing import IO

import msgspec

from stepscope.executors.work import answer

_LENGTH_BYTES = 8


def send(pipe: IO[bytes], message: object) -> None:
    """Write one message."""
    content = msgspec.msgpack.encode(message)
    pipe.write(len(content).to_bytes(_LENGTH_BYTES))
    pipe.write(content)
    pipe.flush()


def receive(pipe: IO[bytes]) -> bytes | None:
    """The next message, to be decoded; None where the other end is gone."""
    length = pipe.read(_LENGTH_BYTES)
    content = pipe.read(int.from_bytes(length))
    return content if len(length) == _LENGTH_BYTES and len(content) == int.from_bytes(length) else None


def main() -> int:
    """Answer until there are no more files."""
    while (job := receive(sys.stdin.buffer)) is not None:
        file, whole = msgspec.msgpack.decode(job, type=tuple[str, bool])
        send(sys.stdout.buffer, answer(file, whole))
    return 0


if __name__ == "__main__":
    sys.exit(main())
