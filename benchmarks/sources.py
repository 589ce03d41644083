"""The traces that are measured: real ones as they are, and grown from them; without Python stacks and with them."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from benchmarks import stacks
from benchmarks.grow import grow, text_of

_REPOSITORY = Path(__file__).resolve().parents[1]
DEFAULT_SOURCE = _REPOSITORY.parent / "shared" / "traces" / "hta_resnet_ddp_a100" / "nccl_data.json.gz"
_FRAME = b'"python_function"'


@dataclass(frozen=True, slots=True)
class Measured:
    """A trace to measure. name: what it is; text_bytes: unzipped; gzipped_bytes: as it is stored."""

    path: Path
    name: str
    text_bytes: int
    gzipped_bytes: int


def measured(source: Path, size_mb: int, cache: Path) -> Measured:
    """A trace as it is for a size of 0, else grown to at least that; ValueError where it can't be grown."""
    text = text_of(source)
    size = len(text)
    stacked = "with Python stacks" if _FRAME in text else "no Python stacks"
    path, how = source, "as it is"
    if size_mb:
        path = _made(source, f"{size_mb}", cache, lambda target: grow(source, target, size_mb * 1_000_000))
        size, how = _text_size(path), "grown"
    name = f"{source.name.partition('.')[0]}, {stacked}, {how}"
    return Measured(path, name, size, path.stat().st_size)


def with_stacks(trace: Path, cache: Path) -> Path:
    """The trace with Python stacks in it, recorded for it."""

    def make(target: Path) -> None:
        stacks.put_into(trace, stacks.record(cache / "recorded-with-stacks"), target)

    return _made(trace, f"stacks {stacks.RECORDED_STEPS}", cache, make)


def _made(source: Path, how: str, cache: Path, make: Callable[[Path], object]) -> Path:
    """The file that is made of a trace, from the cache if it was made before."""
    cache.mkdir(parents=True, exist_ok=True)
    key = hashlib.sha256(source.read_bytes() + how.encode()).hexdigest()[:12]
    target = cache / f"{source.name.partition('.')[0]}.{key}.pt.trace.json.gz"
    if not target.exists():
        print(f"making {target} ...", file=sys.stderr)
        make(target)
    return target


def _text_size(trace: Path) -> int:
    """Bytes that a gzipped file inflates to, below 4 GiB: its last four (RFC 1952)."""
    return int.from_bytes(trace.read_bytes()[-4:], "little")
