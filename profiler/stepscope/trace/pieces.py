"""Cuts the text of a trace into pieces that decode, without ever holding all of it.

The list of events is cut between two events, near a wanted size. Text alone cannot tell such a place from one inside
a string or a nested list, but decoding can: text from the list's start up to a candidate, closed with "]", is whole
JSON only if no string and no bracket is open there. A piece is therefore a piece because it decoded, and a candidate
that does not is passed over for a later one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import suppress

import msgspec

from stepscope.errors import InputError
from stepscope.trace.chunks import StreamCut
from stepscope.trace.mend import Repairs, mend
from stepscope.trace.rows import Row

PIECE_BYTES = 1 << 20
"""Small enough that a piece's rows stay in the processor's cache: measured, a third faster than 8 MB."""

_LIMIT_BYTES = 64 << 20
"""No header, no footer and no event is so long: what is comes from damage, or from a file made to fill memory."""

_LOOK_BACK_BYTES = 4096
"""How far the start of the list may reach back over the border of two blocks."""

_BETWEEN_EVENTS = re.compile(rb"\}\s*(,)\s*\{")
_LIST_START = re.compile(rb'"traceEvents"\s*:\s*\[')
_EVENT_START = re.compile(rb'\}\s*(,)\s*\{\s*"(?:ph|cat|name|id|pid|tid|ts|dur|s|bp|args|sf|cname)"\s*:')
# msgspec's words (its errors carry no codes); a test fails if they change.
_ENDS_EARLY = "Input data was truncated"
_TRAILING = re.compile(r"trailing characters \(byte (\d+)\)")
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_SPACE = b" \t\r\n"

EXPECTED = "expected a Kineto trace: JSON with traceEvents, plain or gzip"

Decode = Callable[[bytes], list[Row]]
Offer = Callable[[bytes], bool]


def _mend_quietly(text: bytes) -> bytes:
    return mend(text, Repairs())


def _last_cut(window: memoryview) -> re.Match[bytes] | None:
    for reach in (1 << 12, 1 << 16, len(window)):
        cuts = list(_BETWEEN_EVENTS.finditer(window, max(0, len(window) - reach)))
        if cuts:
            return cuts[-1]
    return None


class _Open(Exception):
    """The text ends inside a string or a bracket."""


class Pieces:
    """Iterates over the decoded rows of one trace file, piece by piece, as plain lists.

    blocks: the text. decode: a JSON array of events to rows, msgspec.DecodeError where it is no JSON. offer: is given
    every piece first, and those for which it returns True are decoded elsewhere and iterated over as None: they are
    pieces only if they decode there.
    After the iteration `header` holds the fields of the document around the events (those before and those after
    them), and `truncated` says whether the text ended early. InputError where the text is no trace.
    """

    def __init__(
        self,
        name: str,
        blocks: Iterator[bytes],
        decode: Decode,
        repairs: Repairs,
        size: int = PIECE_BYTES,
        offer: Offer | None = None,
    ) -> None:
        self.header: list[dict[str, msgspec.Raw]] = []
        self.truncated = False
        self._name = name
        self._blocks = blocks
        self._decode = decode
        self._repairs = repairs
        self._size = size
        self._offer = offer
        self._stream_cut = False
        self._text = b""
        self._carried = b""
        self._footer: bytes | None = None
        """The text behind the list, as far as it was read; None before the list's end."""

    def __iter__(self) -> Iterator[list[Row] | None]:
        bare = self._find_list()
        windows = self._windows()
        while self._footer is None:
            yield self._next_piece(windows)
        footer = bytearray(self._footer + self._carried)
        for window in windows:
            footer += window
            if len(footer) > _LIMIT_BYTES:
                self.truncated = True
                return
        if not bare and not self._add_header(b"{" + footer.lstrip(_SPACE + b",")):
            self.truncated = True

    def _more(self) -> bool:
        """Append the next block to the text; False at the end, early or not."""
        try:
            block = next(self._blocks, None)
        except StreamCut:
            self._stream_cut = True
            return False
        if block is None:
            return False
        self._text += block
        return True

    def _windows(self) -> Iterator[memoryview]:
        """What is left of the text, in slices of the wanted size."""
        while self._text or self._more():
            text, self._text = memoryview(self._text), b""
            for start in range(0, len(text), self._size):
                yield text[start : start + self._size]

    def _find_list(self) -> bool:
        """Move to just behind the "[" of the list of events; whether the document is that list and no object."""
        self._skip_space()
        if self._text.startswith(b"["):
            self._text = self._text[1:]
            return True
        if not self._text.startswith(b"{"):
            raise InputError(f"{self._name}: not JSON; {EXPECTED}")
        self._take_header()
        return False

    def _skip_space(self) -> None:
        """Move to the first character that says something."""
        skipped = 0
        while skipped <= _LIMIT_BYTES and self._more():
            skipped += len(self._text)
            self._text = self._text.removeprefix(_BYTE_ORDER_MARK).lstrip(_SPACE)
            if self._text:
                return
        what = "a damaged gzip file" if self._stream_cut else "the file is empty"
        raise InputError(f"{self._name}: {what}; {EXPECTED}")

    def _take_header(self) -> None:
        """Move to just behind the first "traceEvents": [ in front of which there is a whole object, but for its end."""
        text, searched, tried = bytearray(self._text), 0, 0
        while max(len(text), tried) <= _LIMIT_BYTES:
            for match in _LIST_START.finditer(text, max(0, searched - _LOOK_BACK_BYTES)):
                if match.end() <= searched or tried > _LIMIT_BYTES:
                    continue
                tried += match.start()
                if self._add_header(bytes(text[: match.start()]).rstrip(_SPACE + b",") + b"}"):
                    self._text = bytes(text[match.end() :])
                    return
            searched, self._text = len(text), b""
            if not self._more():
                break
            text += self._text
        raise InputError(f"{self._name}: no traceEvents in it; {EXPECTED}")

    def _add_header(self, text: bytes) -> bool:
        """Keep the text if it is a JSON object; whether it is one."""
        for make in (bytes, _mend_quietly):
            with suppress(msgspec.DecodeError):
                self.header.append(msgspec.json.decode(make(text), type=dict[str, msgspec.Raw]))
                return True
        return False

    def _next_piece(self, windows: Iterator[memoryview]) -> list[Row] | None:
        """The rows of about one window, or of all that is left of the list; what is behind the cut is carried over."""
        held: list[bytes | memoryview] = [b"[", self._carried]
        self._carried = b""
        refused = passed = 0
        length = len(held[1])
        for window in windows:
            held.append(window)
            passed += 1
            length += len(window)
            if length > _LIMIT_BYTES:
                return self._rows_before_damage(b"".join(held))
            cut = _last_cut(window) if passed >= 1 << refused else None
            if cut is None:
                continue
            text = b"".join((*held[:-1], window[: cut.start(1)], b"]"))
            if self._offer is not None and self._offer(text):
                self._carried = bytes(window[cut.end(1) :])
                return None
            try:
                rows, rest = self._decode_list(text)
            except _Open:
                # Next with twice the text, so that a huge string costs no more than its length.
                refused, passed = refused + 1, 0
                continue
            self._carried = bytes(window[cut.end(1) :])
            if rest:
                self._footer = rest[:-1] + b","
            return rows
        return self._last_piece(b"".join(held))

    def _last_piece(self, text: bytes) -> list[Row]:
        # A text that is cut inside a word or a number looks damaged to a decoder, hence the look at its end.
        if text.rstrip(_SPACE + b"\0").endswith((b"]", b"}")):
            with suppress(_Open):
                rows, self._footer = self._decode_list(text)
                return rows
        self.truncated = True
        self._footer = b""
        return self._whole_rows(text)

    def _rows_before_damage(self, text: bytes) -> list[Row]:
        """Event by event what can be read of a text in which no place between two events was found; the last is carried over.

        InputError where it holds no second event at all.
        """
        starts = [match.end(1) for match in _EVENT_START.finditer(text)]
        if not starts:
            raise InputError(f"{self._name}: an event of over {_LIMIT_BYTES >> 20} MB; {EXPECTED}")
        self._carried = text[starts[-1] :]
        repairs = Repairs()
        rows, _ = self._readable(text[: starts[-1] - 1] + b"]", repairs)
        self._repairs.add(repairs)
        return rows

    def _whole_rows(self, text: bytes) -> list[Row]:
        """The rows of a list that was cut off, up to the last one that is whole."""
        with suppress(_Open, msgspec.DecodeError):
            return self._split(text.rstrip(_SPACE + b",") + b"]")[0]
        cuts = [match.start(1) for match in _BETWEEN_EVENTS.finditer(text)]
        step = 1
        while cuts:
            with suppress(_Open):
                return self._decode_list(text[: cuts[-1]] + b"]")[0]
            del cuts[-step:]
            step *= 2
        return []

    def _decode_list(self, text: bytes) -> tuple[list[Row], bytes]:
        """Rows of a list, mended if need be, and the text behind its end. _Open where it has no end."""
        try:
            return self._split(text)
        except msgspec.DecodeError:
            repairs = Repairs()
            text = mend(text, repairs)
        try:
            rows, rest = self._split(text)
        except msgspec.DecodeError:
            rows, rest = self._readable(text, repairs)
        self._repairs.add(repairs)
        return rows, rest

    def _split(self, text: bytes) -> tuple[list[Row], bytes]:
        """Rows of a list and the text behind its end; _Open where it has none, DecodeError where it is no JSON."""
        try:
            return self._decode(text), b""
        except msgspec.DecodeError as error:
            message = str(error)
            if message == _ENDS_EARLY:
                raise _Open from error
            trailing = _TRAILING.search(message)
            if trailing is None:
                raise
        end = int(trailing[1]) - 1  # the message counts bytes from 1
        return self._decode(text[:end]), text[end:]

    def _readable(self, text: bytes, repairs: Repairs) -> tuple[list[Row], bytes]:
        """Event by event, the rows of those that can be read; for text that is beyond mending."""
        starts = [1, *(match.end(1) for match in _EVENT_START.finditer(text))]
        ends = [start - 1 for start in starts[1:]]
        rows: list[Row] = []
        for start, end in zip(starts, ends, strict=False):
            try:
                rows += self._decode(b"[" + text[start:end] + b"]")
            except msgspec.DecodeError:
                repairs.events += 1
        try:
            last, rest = self._split(b"[" + text[starts[-1] :])
        except (msgspec.DecodeError, _Open):
            repairs.events += 1
            last, rest = [], b""
        return rows + last, rest
