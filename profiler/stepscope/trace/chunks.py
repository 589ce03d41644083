"""The bytes of a trace file, unzipped, in blocks, read ahead of whoever decodes them.

zlib-ng releases the interpreter lock while it inflates, so one thread inflates the next block while the caller decodes
the last one. Blocks are large (megabytes) because each one costs the thread a turn at the lock.
"""

from __future__ import annotations

import threading
from collections.abc import Generator, Iterator
from contextlib import closing
from gzip import BadGzipFile
from queue import Full, Queue
from typing import BinaryIO

from zlib_ng import gzip_ng, zlib_ng

from stepscope.errors import InputError
from stepscope.trace.files import TraceFile, reading_errors, reason, size_of

GZIP_MAGIC = b"\x1f\x8b"
BLOCK_BYTES = 4 << 20
"""Unzipped bytes handed on at a time."""

_READ_BYTES = 64 << 10
_GZIP_WINDOW = 31
"""zlib's code for a gzip header with the largest window."""
_USUAL_RATIO = 11
"""Bytes of text to a byte of gzip in real traces: 7 to 20."""
_BLOCKS_AHEAD = 2
_POLL_SECONDS = 0.1

_InflateError: type[Exception] = zlib_ng.error  # type: ignore[assignment]  # its stubs call it an instance


class StreamCut(Exception):
    """The compressed stream ends early or is damaged; the blocks before it are good."""


def blocks(path: TraceFile, size: int = BLOCK_BYTES) -> Generator[bytes, None, None]:
    """The text of a plain or gzipped file, told apart by the first bytes; StreamCut after the last good block.

    InputError where the file cannot be opened or read.
    """
    try:
        with path.open("rb") as file:
            zipped = file.read(len(GZIP_MAGIC)) == GZIP_MAGIC
            file.seek(0)
            yield from _inflate(file, size) if zipped else iter(lambda: file.read(size), b"")
    except reading_errors() as error:
        raise InputError(f"{path}: cannot be read: {reason(error)}") from error


def _inflate(file: BinaryIO, size: int) -> Iterator[bytes]:
    """Gzip members one after the other; StreamCut after all that could be inflated where the file is damaged."""
    given = 0
    try:
        with gzip_ng.open(file, "rb") as text:
            while block := text.read(size):
                given += len(block)
                yield block
    except (EOFError, BadGzipFile, _InflateError) as error:
        file.seek(0)
        yield from _before_damage(file, given)
        raise StreamCut from error


def _before_damage(file: BinaryIO, given: int) -> Iterator[bytes]:
    """What can be inflated of a damaged file, to the byte, without the first bytes that were given already.

    A second way to inflate, because the first (twice as fast) gives up the whole block in which the damage is.
    """
    stream = zlib_ng.decompressobj(_GZIP_WINDOW)
    data = b""
    while data := data or file.read(_READ_BYTES):
        try:
            block = stream.decompress(data, _READ_BYTES)
        except _InflateError:
            return
        yield block[given:]
        given = max(0, given - len(block))
        data = stream.unconsumed_tail
        if stream.eof:
            data = stream.unused_data
            stream = zlib_ng.decompressobj(_GZIP_WINDOW)


def text_bytes(path: TraceFile) -> int:
    """About how much text a file holds. Raises as `reading_errors` lists where it cannot be read."""
    size = size_of(path)
    with path.open("rb") as file:
        return size * _USUAL_RATIO if file.read(len(GZIP_MAGIC)) == GZIP_MAGIC else size


def ahead(source: Iterator[bytes]) -> Generator[bytes, None, None]:
    """The same blocks, fetched by a thread that stays a few blocks ahead; errors are raised where they belong.

    The thread ends when the source does, or soon after this generator is closed.
    """
    queue: Queue[bytes | BaseException | None] = Queue(_BLOCKS_AHEAD)
    closed = threading.Event()

    def put(item: bytes | BaseException | None) -> None:
        while not closed.is_set():
            try:
                queue.put(item, timeout=_POLL_SECONDS)
            except Full:
                continue
            return

    def fetch() -> None:
        try:
            for block in source:
                put(block)
                if closed.is_set():
                    return
            put(None)
        except (StreamCut, InputError, MemoryError) as error:
            put(error)

    thread = threading.Thread(target=fetch, name="stepscope-inflate", daemon=True)
    thread.start()
    try:
        while (item := queue.get()) is not None:
            if isinstance(item, BaseException):
                raise item
            yield item
    finally:
        closed.set()
        thread.join()


def first_text(path: TraceFile, size: int) -> bytes:
    """Up to size bytes from the start of a file, unzipped; less where it is shorter or damaged."""
    with closing(blocks(path, size)) as source:
        try:
            return next(source, b"")[:size]
        except StreamCut:
            return b""
