"""A recording as bytes, for a process of ours on this machine or another that has read it for us.

Plain columns and fields in msgpack, no code: what comes over the network is data. (`packed` is for files: smaller, and checked.)
"""

from __future__ import annotations

import typing
from dataclasses import replace
from typing import Any

import msgspec
import numpy as np

from stepscope.trace.columns import Events, Trace
from stepscope.trace.recording import Recording

_NONE = np.empty(0, np.int64)
_SMALL = _NONE.astype(np.int32)
_NO_EVENTS = Events(_NONE.astype(np.uint8), _SMALL, _NONE, _NONE, _NONE, _NONE, _NONE, _SMALL, _NONE)


def lean(recording: Recording) -> Recording:
    """The recording without its trace: what is measured of a rank that is not replayed."""
    trace = recording.trace
    return replace(recording, trace=Trace(trace.source, _NO_EVENTS, [], trace.header, trace.base_ns))


def to_bytes(recording: Recording) -> bytes:
    """The recording for `from_bytes`."""
    return _ENCODER.encode(recording)


def from_bytes(content: bytes) -> Recording:
    """The opposite of `to_bytes`. msgspec.MsgspecError where the bytes are no recording."""
    return _DECODER.decode(content)


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return value.dtype.str, value.tobytes()
    raise NotImplementedError(f"no way to carry a {type(value)}")


def _restored(kind: Any, value: Any) -> Any:
    """Columns, which are annotated as arrays; what is annotated as an object is plain already."""
    if typing.get_origin(kind) is not np.ndarray:
        return value
    dtype, content = value
    return np.frombuffer(bytearray(content), dtype)


_ENCODER = msgspec.msgpack.Encoder(enc_hook=_plain)
_DECODER = msgspec.msgpack.Decoder(Recording, dec_hook=_restored)
