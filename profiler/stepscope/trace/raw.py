"""The events of a trace as text, for whoever writes them on: none is decoded, changed or held longer than its piece."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from itertools import chain

import msgspec

from stepscope.trace.chunks import ahead, blocks
from stepscope.trace.files import TraceFile
from stepscope.trace.header import read_header
from stepscope.trace.mend import Repairs
from stepscope.trace.packed import refuse_packed
from stepscope.trace.pieces import Pieces

_DECODER = msgspec.json.Decoder(list[msgspec.Raw])


@dataclass(frozen=True, slots=True)
class RawTrace:
    """A trace file that is being read. Text that is not quite JSON comes mended; of a file cut off, what is whole comes."""

    head: dict[str, msgspec.Raw]
    """The fields of the document before its events."""
    events: Iterator[list[msgspec.Raw]]
    """Each event as it stands in the file, piece by piece."""
    _pieces: Pieces

    def tail(self) -> dict[str, msgspec.Raw]:
        """The fields behind the events; complete once all of those were read."""
        return {name: value for part in self._pieces.header[1:] for name, value in part.items()}


@contextmanager
def raw_trace(path: TraceFile) -> Iterator[RawTrace]:
    """Open a trace file, plain or gzip. InputError where it can't be read, is no trace, or keeps no events."""
    refuse_packed(path)
    with closing(ahead(blocks(path))) as text:
        pieces = Pieces(str(path), text, _DECODER.decode, Repairs())
        events = iter(pieces)
        first = next(events)
        head = pieces.header[0] if pieces.header else {}
        yield RawTrace(head, (piece for piece in chain([first], events) if piece), pieces)


def base_time(path: TraceFile) -> int:
    """The time in ns since the epoch from which the file counts its own: `baseTimeNanoseconds`, 0 where it has none."""
    with raw_trace(path) as trace:
        base = read_header([trace.head])[1]
        if base is None:  # a tool that rewrote the file may have moved it behind the events
            for _ in trace.events:
                pass
            base = read_header([trace.tail()])[1]
    return base or 0
