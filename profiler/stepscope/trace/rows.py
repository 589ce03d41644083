"""The rows of `traceEvents` with only the fields that the analysis needs, as msgspec decodes them.

Phases are the tags of a union, so that flows and other rows that are not needed cost no field at all. Types are wider
than Kineto's own, because tools that rewrite traces turn numbers into strings. Field names are those of Kineto's
output_json.cpp and, for communication, of torch's ParamCommsUtils.hpp.
"""

from __future__ import annotations

import functools
import operator
from contextlib import suppress
from typing import Any

import msgspec

NOTHING = msgspec.Raw(b"")
"""A raw value that is absent."""

Number = int | float | str
Row = Any
"""A Span, Metadata, Instant or one of the ignored rows."""


class Arguments(
    msgspec.Struct,
    gc=False,
    rename={
        "dims": "Input Dims",
        "types": "Input type",
        "collective": "Collective name",
        "elements_in": "In msg nelems",
        "elements_out": "Out msg nelems",
        "group_name": "Process Group Name",
        "group_description": "Process Group Description",
        "group_ranks": "Process Group Ranks",
        "group_size": "Group size",
        "sequence": "Seq",
        "waited_correlation": "wait_on_cuda_event_record_corr_id",
        "waited_stream": "wait_on_stream",
    },
):
    """`args` of a complete event; here and below, fields are in the order of the file, which decodes faster."""

    device: int | str | None = None
    stream: int | str | None = None
    correlation: int | str | None = -1
    bytes: int | str | None = None
    types: msgspec.Raw = NOTHING
    dims: msgspec.Raw = NOTHING
    collective: str | None = None
    elements_in: int | str | None = None
    elements_out: int | str | None = None
    group_size: int | str | None = None
    dtype: str | None = None
    group_name: str | None = None
    group_description: str | None = None
    group_ranks: str | list[Any] | None = None
    sequence: int | str | None = None
    waited_stream: int | str | None = None
    waited_correlation: int | str | None = None


class Span(msgspec.Struct, gc=False, tag="X", tag_field="ph"):
    """A complete event. ts is raw JSON when a decoder for exact times made it."""

    cat: str = ""
    name: str = ""
    pid: int | str | None = None
    tid: int | str | None = None
    ts: Any = ""
    dur: Number = ""
    args: Arguments | None = None


class Metadata(msgspec.Struct, gc=False, tag="M", tag_field="ph"):
    """A row that names a process or thread."""

    name: str = ""
    pid: int | str | None = None
    tid: int | str | None = None
    args: dict[str, Any] | None = None


class Instant(msgspec.Struct, gc=False, tag="i", tag_field="ph"):
    """A point in time, `Record Window End` among them."""

    name: str = ""


# The other phases of the Trace Event Format.
_IGNORED = [
    msgspec.defstruct(f"Ignored{ord(phase)}", [], tag=phase, tag_field="ph", gc=False)
    for phase in "stfIBEbneCNODPcRvVSTpF"
]


def _types(*, exact_times: bool, link_by_external_id: bool) -> tuple[type[Arguments], type[Span], Any]:
    link = {"correlation": "External id" if link_by_external_id else "correlation"}
    arguments: Any = msgspec.defstruct(
        "Arguments", [("correlation", int | str | None, -1)], bases=(Arguments,), rename=link, gc=False
    )
    time = ("ts", msgspec.Raw, NOTHING) if exact_times else ("ts", Number, "")
    fields = [time, ("args", arguments | None, None)]
    span: Any = msgspec.defstruct("Span", fields, bases=(Span,), tag="X", tag_field="ph", gc=False)
    return arguments, span, functools.reduce(operator.or_, (span, Metadata, Instant, *_IGNORED))


class RowDecoder:
    """Decodes a JSON array of events into rows.

    exact_times: keep `ts` as raw JSON, for absolute times whose nanoseconds a float cannot hold.
    link_by_external_id: read `External id` in the place of `correlation`, for files that have no correlation ids.
    """

    def __init__(self, *, exact_times: bool = False, link_by_external_id: bool = False) -> None:
        self.exact_times = exact_times
        self._arguments, self.span_type, self._row_type = _types(
            exact_times=exact_times, link_by_external_id=link_by_external_id
        )
        rows: Any = list[self._row_type]  # type: ignore[name-defined]
        self._decoder = msgspec.json.Decoder(rows)

    def decode(self, text: bytes) -> list[Row]:
        """Rows of an array of events; msgspec.DecodeError where the text is not whole or not JSON.

        An event that does not fit the types is taken as far as it does; what is no event is left out.
        """
        try:
            rows: list[Row] = self._decoder.decode(text)
        except msgspec.ValidationError:
            events = msgspec.json.decode(text, type=list[msgspec.Raw])
            rows = [row for event in events if (row := self._fit(event)) is not None]
        return rows

    def _fit(self, event: msgspec.Raw) -> Row | None:
        """The event with those of its fields that have a usable type; one without a phase is taken as complete."""
        try:
            return msgspec.json.decode(event, type=self._row_type)
        except msgspec.ValidationError:
            fields = _fields(event)
        if bytes(fields.get("ph", b'"X"')) != b'"X"':
            return None
        values = _fitting(fields, self.span_type)
        if "args" in fields and "args" not in values:
            values["args"] = self._arguments(**_fitting(_fields(fields["args"]), self._arguments))
        return self.span_type(**values)


def _fields(text: msgspec.Raw) -> dict[str, msgspec.Raw]:
    try:
        return msgspec.json.decode(text, type=dict[str, msgspec.Raw])
    except msgspec.ValidationError:
        return {}


def _fitting(fields: dict[str, msgspec.Raw], struct: type[msgspec.Struct]) -> dict[str, Any]:
    """The values that fit the struct's types, by attribute."""
    values: dict[str, Any] = {}
    for field in msgspec.structs.fields(struct):
        if field.encode_name in fields:
            with suppress(msgspec.ValidationError):
                values[field.name] = msgspec.json.decode(fields[field.encode_name], type=field.type)
    return values
