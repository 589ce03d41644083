"""Makes a large trace from a real one: its events over and over, each copy later and with ids of its own.

The copies keep the spelling of the original to the byte, because how a file is laid out decides how fast it is read.
"""

from __future__ import annotations

import gzip
import re
from collections.abc import Iterator
from pathlib import Path

_IDS = rb"correlation|External id|Python id|Python parent id|id"
_NUMBERS = re.compile(rb'"(ts|%b)": (\d+)|ProfilerStep#(\d+)' % _IDS)
_LIST_START = re.compile(rb'"traceEvents"\s*:\s*\[')
_PAUSE_US = 1_000_000
"""Between two copies."""


def grow(source: Path, target: Path, size: int) -> int:
    """Write at least size bytes of trace, gzipped, to target; returns how many bytes it inflates to.

    ValueError where the source is not laid out as Kineto writes it.
    """
    text = text_of(source)
    start = _LIST_START.search(text)
    end = text.rfind(b"]", 0, _last_event_end(text))
    if start is None or end < 0:
        raise ValueError(f"{source}: not a trace as Kineto writes it")
    head, body, tail = text[: start.end()], text[start.end() : end], text[end:]
    total = len(head) + len(tail)
    draft = target.with_suffix(".part")
    with gzip.open(draft, "wb", compresslevel=6) as file:
        file.write(head)
        for number, copy in enumerate(_copies(body, -(-size // len(body)))):
            total += file.write(b"," + copy if number else copy)
        file.write(tail)
    draft.replace(target)
    return total


def text_of(trace: Path) -> bytes:
    """A trace as text, gzipped or not."""
    text = trace.read_bytes()
    return gzip.decompress(text) if text[:2] == b"\x1f\x8b" else text


def _last_event_end(text: bytes) -> int:
    """A place behind the list's closing bracket and before any other: the header may follow it."""
    mark = text.rfind(b"Record Window End")
    closing = text.find(b"]", mark)
    return closing + 1 if mark >= 0 else -1


def _copies(body: bytes, count: int) -> Iterator[bytes]:
    times = [int(time) for time in re.findall(rb'"ts": (\d+)', body)]
    ids = [int(number) for number in re.findall(rb'"(?:%b)": (\d+)' % _IDS, body)]
    steps = len(set(re.findall(rb"ProfilerStep#(\d+)", body)))
    span, id_step = max(times) - min(times) + _PAUSE_US, max(ids) + 1

    def copy(number: int) -> bytes:
        def moved(match: re.Match[bytes]) -> bytes:
            key, value, step = match.groups()
            if step is not None:
                return b"ProfilerStep#%d" % (int(step) + number * steps)
            return b'"%b": %d' % (key, int(value) + number * (span if key == b"ts" else id_step))

        return _NUMBERS.sub(moved, body)

    return map(copy, range(count))
