"""Files that commands write: refused where they exist, whole or not there at all, named at the end."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import BinaryIO, TextIO, cast

from zlib_ng.gzip_ng import GzipNGFile

from stepscope.errors import InputError

STANDARD_OUTPUT = "-"

_GZIP_LEVEL = 6
"""Traces come out about as large as Kineto's own."""


def refuse_existing(paths: Iterable[str | Path | None], *, force: bool) -> None:
    """Raise InputError for the first path that can't be written; call it before the work, not after.

    None and "-" pass, and so do devices such as /dev/null.
    """
    for path in paths:
        if path is None or path == STANDARD_OUTPUT:
            continue
        target = Path(path)
        with _refusing(target):
            if target.is_dir():
                raise InputError(f"cannot write {target}: it is a directory; name a file in it")
            if target.is_file() and not force:
                raise InputError(f"{target} exists; pass --force to replace it, or name another file")
            if not target.parent.is_dir():
                raise InputError(
                    f"cannot write {target}: there is no directory {target.parent}; create it first"
                )


def refuse_same(paths: Iterable[str | Path | None]) -> None:
    """Raise InputError where two of the paths, outputs or inputs, are one file, or standard output: one would be lost."""
    seen: set[Path] = set()
    streams = 0
    for path in paths:
        if path is None:
            continue
        if path == STANDARD_OUTPUT:
            streams += 1
            continue
        with _refusing(path):
            place = Path(path).resolve()
            if place in seen:
                raise InputError(f"{path} is named twice, and one would replace the other; name another file")
            if not place.exists() or place.is_file():
                seen.add(place)
    if streams > 1:
        raise InputError(
            "two outputs go to standard output (-) and would run into one another; name a file for one"
        )


@contextmanager
def _refusing(path: str | Path) -> Iterator[None]:
    """InputError for a place that can't even be looked at."""
    try:
        yield
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror or error}") from error


def write_file(path: str | Path, write: Callable[[TextIO], None]) -> None:
    """Have `write` fill the file; a reader sees the old file or all of the new one. "-" is standard output."""
    if path == STANDARD_OUTPUT:
        write(sys.stdout)
        return

    def write_text(stream: BinaryIO) -> None:
        text = io.TextIOWrapper(stream, encoding="utf-8")
        write(text)
        text.detach()

    write_bytes(path, write_text)


def write_bytes(path: str | Path, write: Callable[[BinaryIO], None]) -> None:
    """The same for a file of bytes. A file whose name ends in .gz is written gzipped, text or not."""
    if path == STANDARD_OUTPUT:
        sys.stdout.flush()
        write(sys.stdout.buffer)
        sys.stdout.buffer.flush()
        return
    target = Path(path)
    special = target.exists() and not target.is_file()
    draft = target if special else target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        with draft.open("wb") as stream, _as_named(target, stream) as content:
            write(content)
        if not special:
            draft.replace(target)
    except OSError as error:
        raise InputError(f"cannot write {target}: {error.strerror or error}") from error
    finally:
        if not special:
            draft.unlink(missing_ok=True)


def _as_named(target: Path, stream: BinaryIO) -> AbstractContextManager[BinaryIO]:
    """The stream, or one that gzips into it; without a time in it, so that equal contents are equal files."""
    if target.suffix != ".gz":
        return nullcontext(stream)
    gzipped = GzipNGFile(filename="", mode="wb", compresslevel=_GZIP_LEVEL, fileobj=stream, mtime=0)
    return cast("AbstractContextManager[BinaryIO]", gzipped)


def announce(paths: Iterable[str | Path], *, stdout_holds_data: bool) -> None:
    """Say what was written; beside the data when standard output carries it."""
    for path in paths:
        if path != STANDARD_OUTPUT:
            print(f"Wrote {path}", file=sys.stderr if stdout_holds_data else sys.stdout)
