"""Where traces are: on this machine, or in a store that fsspec reaches (s3://, gs://, abfs://, http:// and more).

A remote file answers to the few of pathlib's words that reading a trace takes, so that nobody else tells the two apart.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import Any, BinaryIO, TypeAlias, TypeVar, cast

from stepscope.errors import InputError

_LOCAL = "file://"

_Answer = TypeVar("_Answer")

_OF_LIBRARIES = (
    ("botocore.exceptions", "BotoCoreError"),
    ("botocore.exceptions", "ClientError"),
    ("aiohttp", "ClientError"),
    ("google.auth.exceptions", "GoogleAuthError"),
    ("gcsfs.retry", "HttpError"),
)
"""What stores' own libraries raise that is no OSError."""


def reading_errors() -> tuple[type[Exception], ...]:
    """What opening and reading a trace's file may raise; of libraries, those of the ones that are loaded."""
    loaded = [(sys.modules[module], name) for module, name in _OF_LIBRARIES if module in sys.modules]
    return (OSError, *(getattr(module, name) for module, name in loaded if hasattr(module, name)))


def reason(error: Exception) -> str:
    """Why a file could not be read, in words."""
    return (error.strerror if isinstance(error, OSError) else None) or str(error) or type(error).__name__


@dataclass(frozen=True)
class RemoteFile:
    """A file or folder of a store. Methods raise as `reading_errors` lists."""

    url: str
    asked: str = field(default="", compare=False)
    """What the user wrote of it, where this is a file looked for there."""

    def __str__(self) -> str:
        return self.url

    @property
    def name(self) -> str:
        """The last part of its path."""
        return self.url.rstrip("/").rpartition("/")[2]

    @cached_property
    def _at(self) -> tuple[Any, str]:
        """Its file system and its path there. InputError where there is no way to the store."""
        protocol, asked = self.url.partition("://")[0], self.asked or self.url
        try:
            fsspec = import_module("fsspec")
            found: tuple[Any, str] = fsspec.core.url_to_fs(self.url)
        except ImportError as error:
            missing = "" if error.name in (None, "fsspec") else f" {error.name}"
            raise InputError(
                f"{asked}: reading {protocol}:// needs stepscope[remote]{missing or _driver(protocol)}, which is not "
                "installed: pip install 'stepscope[remote]', or copy the traces here"
            ) from error
        except ValueError as error:
            raise InputError(
                f"{asked}: no way to read {protocol}://; copy the traces here, or use a protocol that fsspec knows"
            ) from error
        driver = type(found[0]).__module__.partition(".")[0]
        # what it tries again is told when it gives up
        logging.getLogger(driver).addHandler(logging.NullHandler())
        return found

    def _ask(self, question: Callable[[Any, str], _Answer]) -> _Answer:
        """What its file system says. InputError where that cannot ask, as it is set up: an endpoint that is no URL."""
        system, path = self._at
        try:
            return question(system, path)
        except ValueError as error:
            raise InputError(f"{self.asked or self.url}: cannot be read: {error}") from error

    @property
    def in_this_process(self) -> bool:
        """Whether no other process can see it."""
        return self.url.startswith("memory://")

    def open(self, mode: str = "rb") -> BinaryIO:
        """Its bytes, as they come."""
        return cast("BinaryIO", self._ask(lambda system, path: system.open(path, mode)))

    def read_bytes(self) -> bytes:
        """All of its bytes."""
        with self.open() as file:
            return file.read()

    def size(self) -> int:
        """In bytes; 0 where the store does not say."""
        return self._ask(lambda system, path: system.size(path)) or 0

    def is_dir(self) -> bool:
        """Whether it is a folder."""
        return self._ask(lambda system, path: bool(system.isdir(path)))

    def is_file(self) -> bool:
        """Whether it is a file."""
        return self._ask(lambda system, path: bool(system.isfile(path)))

    def exists(self) -> bool:
        """Whether it is there."""
        return self._ask(lambda system, path: bool(system.exists(path)))

    def is_fifo(self) -> bool:
        """No store has pipes."""
        return False

    def resolve(self) -> RemoteFile:
        """It has one name only."""
        return self

    def iterdir(self) -> Iterator[RemoteFile]:
        """What is in the folder."""
        system, _ = self._at
        entries = self._ask(lambda system, path: system.ls(path, detail=False))
        return (RemoteFile(system.unstrip_protocol(entry)) for entry in entries)

    def matches(self) -> list[RemoteFile]:
        """What its name, as a glob, means."""
        system, _ = self._at
        entries = self._ask(lambda system, path: system.glob(path))
        return [RemoteFile(system.unstrip_protocol(entry)) for entry in entries]

    def __truediv__(self, name: str) -> RemoteFile:
        return RemoteFile(f"{self.url.rstrip('/')}/{name}", self.asked or self.url)


TraceFile: TypeAlias = Path | RemoteFile


def located(given: str | TraceFile) -> TraceFile:
    """What a path or URL on a command line means."""
    if isinstance(given, str) and given.startswith(_LOCAL):
        return Path(given.removeprefix(_LOCAL))
    if isinstance(given, str) and "://" in given and not Path(given).exists():
        return RemoteFile(given)
    return Path(given) if isinstance(given, str) else given


def local(given: str) -> Path:
    """What a path or `file://` means to a command that reads this machine only. InputError for a store."""
    place = located(given)
    if isinstance(place, RemoteFile):
        raise InputError(
            f"{given}: is in a store, and only files of this machine are read here; copy it here first"
        )
    return place


def holds(folder: TraceFile, name: str) -> bool:
    """Whether a folder has a file of that name. InputError, which names the folder, where that can't be told."""
    try:
        return (folder / name).is_file()
    except reading_errors() as error:
        raise InputError(f"{folder}: cannot be read: {reason(error)}") from error


def size_of(file: TraceFile) -> int:
    """Bytes of a file as it is stored."""
    return file.stat().st_size if isinstance(file, Path) else file.size()


def _driver(protocol: str) -> str:
    """The package that fsspec wants for a store, for the commonest."""
    named = {"s3": "s3fs", "s3a": "s3fs", "gs": "gcsfs", "gcs": "gcsfs", "abfs": "adlfs", "az": "adlfs"}
    return f" and {named[protocol]}" if protocol in named else ""
