"""Repairs of text that is not quite JSON, after faults found in real traces.

Kineto has written bare `inf` and `nan` (numbers formatted without a check), Python's json module writes `Infinity` and
`NaN`, names have held control characters, stray backslashes and bytes that are no UTF-8, and hand-cut files have
trailing commas. Each is mended where it stands, outside or inside a string as it belongs.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_TOKEN = re.compile(
    rb"""
      (?P<plain>    "[^"\\\x00-\x1f]*"  )
    | (?P<string>   "(?:[^"\\]++|\\.)*+(?:"|\\?\Z)  )
    | (?P<value>    [-+]?\b(?:inf(?:inity)?|nan(?:\([^)]{0,9}\))?)(?![\w"])  )
    | (?P<comma>    ,(?=\s*[\]}])  )
    """,
    re.VERBOSE | re.DOTALL | re.IGNORECASE,
)
"""A string may also go on to the end of the text: looking for its end from each quote inside it would take for ever."""

_BAD_IN_STRING = re.compile(
    rb"""
      [\x00-\x1f]
    | \\(?P<escape>  u(?![0-9a-f]{4}) | [^"\\/bfnrtu] )
    | \\u d[89ab][0-9a-f]{2} \\u d[c-f][0-9a-f]{2}
    | (?P<lone>  \\u d[89a-f][0-9a-f]{2} )
    | \\.
    """,
    re.VERBOSE | re.DOTALL | re.IGNORECASE,
)


@dataclass(slots=True)
class Repairs:
    """What had to be mended in a file."""

    values: int = 0
    """Numbers that JSON cannot write."""
    strings: int = 0
    events: int = 0
    """Events that could not be read even so."""

    def add(self, other: Repairs) -> None:
        """Count another's too."""
        self.values += other.values
        self.strings += other.strings
        self.events += other.events


def mend(text: bytes, repairs: Repairs) -> bytes:
    """The text as JSON: unreadable values become null, bad characters and escapes in strings "?"; counted in repairs."""
    try:
        text.decode()
    except UnicodeDecodeError:
        repairs.strings += 1
        text = text.decode(errors="replace").encode()

    def mend_token(match: re.Match[bytes]) -> bytes:
        token = match.group()
        if match.lastgroup == "plain":
            return token
        if match.lastgroup == "string":
            mended = _mend_string(token)
            repairs.strings += mended != token
            return mended
        if match.lastgroup == "comma":
            return b""
        repairs.values += 1
        return b"null"

    return _TOKEN.sub(mend_token, text)


def _mend_string(token: bytes) -> bytes:
    def mend_part(match: re.Match[bytes]) -> bytes:
        part = match.group()
        if match.lastgroup == "escape":
            return b"\\" + part
        if match.lastgroup == "lone":
            return b"?"
        return b" " if part < b" " else part

    return _BAD_IN_STRING.sub(mend_part, token)
