"""Property: however a trace is written down and wherever it is cut into pieces, the same columns come out."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from plain_reading import plain_rows, rows_of
from stepscope.errors import InputError
from stepscope.trace.reader import read_in_pieces

NASTY = [
    '}, {"ph": "X"}',
    "},{",
    '"}]',
    "\\",
    '\\"',
    "]}",
    '"traceEvents": [',
    "\n",
    "\u2028",
    "\N{GRINNING FACE}",
    "inf",
]
names = st.one_of(st.sampled_from(NASTY), st.text(st.characters(exclude_categories=["Cs"]), max_size=12))
ids = st.integers(0, 2**40)
times = st.one_of(st.integers(0, 10**12), st.integers(0, 10**15).map(lambda ns: ns / 1000))
values = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(-(2**60), 2**60),
        st.floats(allow_nan=False, allow_infinity=False),
        names,
    ),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(names, inner, max_size=3)),
    max_leaves=6,
)
arguments = st.builds(
    lambda other, device, stream, correlation: (
        other | {"device": device, "stream": stream, "correlation": correlation}
    ),
    st.dictionaries(names, values, max_size=3),
    st.integers(0, 7),
    ids,
    ids,
)
spans = st.fixed_dictionaries(
    {
        "ph": st.just("X"),
        "cat": st.sampled_from(
            ["cpu_op", "user_annotation", "cuda_runtime", "kernel", "gpu_memcpy", "python_function"]
        ),
        "name": names,
        "pid": ids,
        "tid": ids,
        "ts": times,
        "dur": times,
        "args": arguments,
    }
)
others = st.fixed_dictionaries(
    {"ph": st.sampled_from("sfiMC"), "name": names, "pid": ids, "tid": ids, "ts": times},
    optional={"cat": names, "id": ids, "args": st.dictionaries(names, values, max_size=2)},
)
first = spans.filter(lambda event: event["cat"] != "python_function")


@st.composite
def documents(draw: st.DrawFn) -> Any:
    """A trace as a document: events in any order of fields, header fields before and after them, or a bare list."""
    events = [draw(first), *draw(st.lists(st.one_of(spans, others), max_size=12))]
    events = [dict(draw(st.permutations(list(event.items())))) for event in events]
    if draw(st.booleans()):
        return events
    before, after = (draw(st.dictionaries(names, values, max_size=3)) for _ in range(2))
    return before | {"traceEvents": events} | {f"after {name}": value for name, value in after.items()}


@st.composite
def texts(draw: st.DrawFn, document: Any) -> bytes:
    """The document in one of the ways that tools write JSON."""
    text = json.dumps(
        document,
        indent=draw(st.sampled_from([None, 0, 1, 4, "\t"])),
        separators=draw(st.sampled_from([None, (",", ":"), (", ", ": "), (" ,\r\n", " : ")])),
        ensure_ascii=draw(st.booleans()),
        sort_keys=draw(st.booleans()),
    )
    return text.encode()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("styles")


@settings(max_examples=250, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data(), piece_bytes=st.sampled_from([16, 100, 400, 2000, 1 << 20]), zipped=st.booleans())
def test_every_style_of_json_and_every_cut_gives_the_same_columns(
    folder: Path, data: st.DataObject, piece_bytes: int, zipped: bool
) -> None:
    document = data.draw(documents())
    text = data.draw(texts(document))
    path = folder / "rank0.json"
    path.write_bytes(gzip.compress(text, 1) if zipped else text)
    trace = read_in_pieces(path, piece_bytes)
    assert rows_of(trace) == plain_rows(json.loads(text))
    assert not trace.truncated
    codes = {warning.code for warning in trace.warnings}
    assert not codes & {"unreadable-values", "unreadable-events", "mended-text"}


@settings(max_examples=250, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data(), piece_bytes=st.sampled_from([16, 400, 1 << 20]))
def test_a_text_that_is_cut_anywhere_gives_a_beginning_of_the_columns_or_a_refusal(
    folder: Path, data: st.DataObject, piece_bytes: int
) -> None:
    document = data.draw(documents())
    text = data.draw(texts(document))
    events = document if isinstance(document, list) else document["traceEvents"]
    path = folder / "rank0.json"
    path.write_bytes(text[: data.draw(st.integers(0, len(text) - 1))])
    try:
        trace = read_in_pieces(path, piece_bytes)
    except InputError as refusal:
        assert "\n" not in str(refusal)
        return
    got = rows_of(trace)
    kept = [event for event in events if event["ph"] == "X" and event["cat"] != "python_function"]
    assert got == plain_rows(kept[: len(got)])
    assert trace.truncated
