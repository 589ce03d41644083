"""The reader on files that are cut off, damaged or no traces: what is whole is kept, or one line says what is wrong."""

from __future__ import annotations

import gzip
import json
import math
import threading
from pathlib import Path
from typing import Any

import pytest

from build_trace import TraceBuilder
from plain_reading import plain_rows, rows_of
from stepscope.errors import InputError
from stepscope.trace.columns import Trace
from stepscope.trace.reader import read, read_in_pieces


def kernels(count: int) -> TraceBuilder:
    trace = TraceBuilder(rank=0)
    for index in range(count):
        trace.kernel(f"kernel_{index}", launched=10 * index, start=10 * index + 5, duration=4.5)
    return trace


def text_of(builder: TraceBuilder) -> bytes:
    return json.dumps(builder.document()).encode()


def read_text(folder: Path, text: bytes, piece_bytes: int = 1 << 20) -> Trace:
    path = folder / "rank0.json"
    path.write_bytes(text)
    return read_in_pieces(path, piece_bytes)


def messages(trace: Trace) -> dict[str, str]:
    return {warning.code: warning.message for warning in trace.warnings}


def refused(path: Path) -> str:
    """The one line that says why a file is refused."""
    with pytest.raises(InputError) as caught:
        read(path)
    message = str(caught.value)
    assert message.startswith(str(path))
    assert "\n" not in message
    return message


@pytest.mark.parametrize("piece_bytes", [300, 1 << 20])
def test_wherever_a_file_is_cut_the_events_that_are_whole_are_kept(tmp_path: Path, piece_bytes: int) -> None:
    """Every cut, inside strings, numbers and brackets included."""
    builder = kernels(2)
    builder.events[2]["args"] |= {"a": None, "b": [True, False, -1.5e-7], "c": "\N{GRINNING FACE}\u0007"}
    document = builder.document()
    text = json.dumps(document).encode()
    rows = plain_rows(document)
    ends = [
        text.index(json.dumps(event).encode()) + len(json.dumps(event))
        for event in document["traceEvents"][:-1]
    ]
    for cut in range(ends[0], len(text)):
        trace = read_text(tmp_path, text[:cut], piece_bytes)
        assert rows_of(trace) == rows[: sum(end <= cut for end in ends)]
        assert trace.truncated
        assert messages(trace)["truncated"] == "the file ends early: only what is whole was read"


def test_a_file_cut_before_the_first_whole_event_is_refused(tmp_path: Path) -> None:
    text = text_of(kernels(1))
    for cut in range(text.index(b'"cuda_runtime"'), text.index(b'"External id"')):
        path = tmp_path / "cut.json"
        path.write_bytes(text[:cut])
        assert "cut off before the first whole event" in refused(path)


@pytest.mark.parametrize("share", [0.3, 0.6, 0.95])
def test_a_cut_gzip_gives_what_it_still_holds(tmp_path: Path, share: float) -> None:
    builder = kernels(400)
    zipped = gzip.compress(text_of(builder))
    path = tmp_path / "rank0.json.gz"
    path.write_bytes(zipped[: int(len(zipped) * share)])
    trace = read(path)
    got, rows = rows_of(trace), plain_rows(builder.document())
    assert got == rows[: len(got)]
    assert (share - 0.25) * len(rows) < len(got) < len(rows)
    assert trace.truncated


def test_a_gzip_damaged_in_the_middle_gives_the_blocks_before_the_damage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    builder = kernels(4000)
    zipped = bytearray(gzip.compress(text_of(builder), compresslevel=1))
    middle = len(zipped) // 2
    zipped[middle : middle + 64] = bytes(64)
    path = tmp_path / "rank0.json.gz"
    path.write_bytes(zipped)
    monkeypatch.setattr("stepscope.trace.chunks._READ_BYTES", 1 << 10)
    trace = read(path)
    got = rows_of(trace)
    assert 1000 < len(got) < 8000
    assert got[:1000] == plain_rows(builder.document())[:1000]
    assert trace.truncated


def test_a_gzip_whose_end_alone_is_lost_is_whole(tmp_path: Path) -> None:
    """The eight bytes behind the data are a checksum and a length."""
    builder = kernels(5)
    path = tmp_path / "rank0.json.gz"
    path.write_bytes(gzip.compress(text_of(builder))[:-8])
    trace = read(path)
    assert rows_of(trace) == plain_rows(builder.document())
    assert (trace.truncated, trace.warnings) == (False, ())


@pytest.mark.parametrize(
    "number", ["inf", "-inf", "Infinity", "-Infinity", "nan", "NaN", "-nan", "-nan(ind)", "INF"]
)
def test_numbers_that_json_cannot_write_cost_only_themselves(tmp_path: Path, number: str) -> None:
    builder = kernels(3)
    builder.events[1]["args"]["memory bandwidth (GB/s)"] = 0.5
    builder.events[3]["args"]["occupancy"] = [0.5, 1]
    builder.span("cpu_op", "reads inf, nan: -inf}", 50, 1)
    rows = plain_rows(builder.document())
    damaged = text_of(builder).replace(b'(GB/s)": 0.5', b'(GB/s)": ' + number.encode())
    trace = read_text(tmp_path, damaged)
    assert rows_of(trace) == rows
    assert messages(trace) == {"unreadable-values": "one value unreadable (such as Infinity)"}
    trace = read_text(tmp_path, damaged.replace(b"[0.5, 1]", f"[{number}, {number}]".encode()))
    assert rows_of(trace) == rows
    assert messages(trace) == {"unreadable-values": "3 values unreadable (such as Infinity)"}


def test_what_pythons_json_writes_for_infinity_is_read(tmp_path: Path) -> None:
    builder = kernels(2)
    builder.events[1]["args"] |= {"a": math.inf, "b": -math.inf, "c": math.nan}
    trace = read_text(tmp_path, text_of(builder))
    assert len(trace.events) == 4
    assert messages(trace) == {"unreadable-values": "3 values unreadable (such as Infinity)"}


def test_an_event_without_a_readable_start_is_left_out_and_counted(tmp_path: Path) -> None:
    builder = kernels(4)
    rows = plain_rows(builder.document())
    builder.events[2]["ts"] = math.nan
    builder.events[3]["ts"] = "soon"
    del builder.events[4]["ts"]
    trace = read_text(tmp_path, text_of(builder))
    assert rows_of(trace) == rows[:2] + rows[5:]
    assert messages(trace)["unreadable-events"] == "3 events unreadable, left out"


def test_fields_of_an_odd_type_are_taken_as_absent(tmp_path: Path) -> None:
    builder = kernels(2)
    rows = plain_rows(builder.document())
    builder.events[0] |= {"args": ["odd"]}
    builder.events[1]["args"] |= {"stream": 7.5, "correlation": {"odd": 1}, "Collective name": 3}
    builder.events[3]["args"]["dtype"] = 8
    odd: list[Any] = [17, None, "event", [], {"ph": "M", "name": 3, "args": 5}, {"ph": 8}]
    builder.events += odd
    trace = read_text(tmp_path, text_of(builder))
    got = rows_of(trace)
    assert got[0] == (*rows[0][:6], -1, *rows[0][7:])
    assert got[1] == (*rows[1][:6], -1, *rows[1][7:])
    assert got[2:] == rows[2:]


def test_negative_durations_are_taken_as_nothing(tmp_path: Path) -> None:
    builder = kernels(2)
    builder.events[1]["dur"] = -5
    trace = read_text(tmp_path, text_of(builder))
    assert trace.events.duration.tolist() == [3000, 0, 3000, 4500]
    assert messages(trace) == {"negative-durations": "one event with a negative duration, taken as 0"}


@pytest.mark.parametrize(
    ("written", "name"),
    [
        (b"line\nbreak\t", "line break "),
        (b"C:\\Users\\x", "C:\\Users\\x"),
        (b"a\\u12", "a\\u12"),
        (b"half \\ud800 pair", "half ? pair"),
        (b"pair \\ud83d\\ude00", "pair \N{GRINNING FACE}"),
        (b"latin \xe9", "latin \N{REPLACEMENT CHARACTER}"),
        (b"cut \xf0\x9f\x98", "cut \N{REPLACEMENT CHARACTER}"),
    ],
)
def test_text_that_is_no_json_string_is_mended(tmp_path: Path, written: bytes, name: str) -> None:
    builder = kernels(2)
    builder.span("cpu_op", "NAME", 50, 1)
    trace = read_text(tmp_path, text_of(builder).replace(b"NAME", written))
    assert trace.names[trace.events.name[-1]] == name
    assert len(trace.events) == 5
    whole = b"\\ude00" in written
    assert messages(trace) == ({} if whole else {"mended-text": "one string with invalid characters, mended"})


@pytest.mark.parametrize("piece_bytes", [300, 1 << 20])
def test_an_event_that_cannot_be_mended_costs_only_itself(tmp_path: Path, piece_bytes: int) -> None:
    builder = kernels(6)
    rows = plain_rows(builder.document())
    damaged = text_of(builder).replace(b"kernel_2", b'ker"nel_"2').replace(b"kernel_4", b'"kernel_4')
    trace = read_text(tmp_path, damaged, piece_bytes)
    assert rows_of(trace) == [row for row in rows if row[1] not in ("kernel_2", "kernel_4")]
    assert messages(trace) == {"unreadable-events": "2 events unreadable, left out"}
    assert trace.header.rank == 0


@pytest.mark.parametrize("helper", [False, True])
def test_a_second_process_changes_nothing(tmp_path: Path, helper: bool) -> None:
    builder = kernels(3000)
    builder.collective("allreduce", launched=100.5, start=200.5, duration=10, elements=8, sequence=3)
    builder.span("cpu_op", "a", 1, 1, pid="host", thread="main")
    builder.name_thread(10, "python3")
    path = builder.write(tmp_path / "rank0.json.gz")
    trace = read_in_pieces(path, 3000, helper=helper)
    alone = read(path)
    assert rows_of(trace) == rows_of(alone)
    assert trace.comm_arguments == alone.comm_arguments
    assert len(trace.comm_arguments) == 2
    assert trace.thread_names == {(10, 10): "python3"}
    assert (trace.header, trace.base_ns, trace.warnings) == (alone.header, alone.base_ns, ())


def test_what_a_second_process_cannot_read_is_read_alone(tmp_path: Path) -> None:
    """Here its pieces are damaged, then hold times that no float can, then are cut inside strings."""
    damaged = text_of(kernels(3000)).replace(b'"stream": 7', b'"stream": 7, "x": inf')
    path = tmp_path / "rank0.json"
    path.write_bytes(damaged)
    trace = read_in_pieces(path, 3000, helper=True)
    assert messages(trace) == {"unreadable-values": "3000 values unreadable (such as Infinity)"}
    late = kernels(900)
    for event in late.events:
        event["ts"] += 1_712_195_495_519_689.25
    path.write_bytes(text_of(late))
    assert rows_of(read_in_pieces(path, 3000, helper=True)) == plain_rows(late.document())
    nested = kernels(900)
    for event in nested.events:
        event["args"]["text"] = '}, {"ph": "X"}, {"ph": "X"}, {"ph": "X"}' * 40
    path.write_bytes(text_of(nested))
    assert rows_of(read_in_pieces(path, 3000, helper=True)) == plain_rows(nested.document())


def test_trailing_commas_are_no_harm(tmp_path: Path) -> None:
    builder = kernels(2)
    damaged = text_of(builder).replace(b"}]}", b"},\n]}").replace(b'"queued": 0}', b'"queued": 0,}')
    trace = read_text(tmp_path, damaged)
    assert rows_of(trace) == plain_rows(builder.document())
    assert not trace.truncated


def test_a_byte_order_mark_and_space_around_the_document_are_no_harm(tmp_path: Path) -> None:
    builder = kernels(2)
    trace = read_text(tmp_path, b"\xef\xbb\xbf \r\n" + text_of(builder) + b"\r\n ")
    assert rows_of(trace) == plain_rows(builder.document())
    assert trace.warnings == ()


@pytest.mark.parametrize("piece_bytes", [200, 1 << 20])
def test_a_list_inside_the_header_or_a_string_is_not_taken_for_the_events(
    tmp_path: Path, piece_bytes: int
) -> None:
    builder = kernels(3)
    inner = [{"ph": "X", "cat": "kernel", "name": "decoy", "ts": 1, "dur": 1}] * 5
    builder.header |= {"nested": {"traceEvents": inner}, "text": 'is "traceEvents": [{}, {}]'}
    builder.events[0]["args"]["rows"] = inner
    builder.events[1]["name"] = '}, {"ph": "X"}], "traceEvents": [{"ph": "X"}, {"ph": "X"}' * 9
    trace = read_text(tmp_path, text_of(builder), piece_bytes)
    assert rows_of(trace) == plain_rows(builder.document())
    assert (trace.truncated, trace.warnings) == (False, ())


def test_what_is_no_trace_is_refused_in_one_line(tmp_path: Path) -> None:
    contents: dict[str, tuple[bytes, str]] = {
        "empty.json": (b"", "the file is empty"),
        "blank.json": (b" \n\n", "the file is empty"),
        "empty.json.gz": (gzip.compress(b""), "the file is empty"),
        "other.json": (b'{"name": "results", "rows": [1, 2, 3]}', "no traceEvents in it"),
        "number.json": (b"17", "not JSON"),
        "numbers.json": (b"[1, 2, 3]", "holds no timed events"),
        "nothing.json": (b'{"traceEvents": []}', "holds no timed events"),
        "text.json": (b"# A report\n", "not JSON"),
        "garbage.json": (bytes(range(256)) * 40, "not JSON"),
        "garbage.json.gz": (b"\x1f\x8b" + bytes(range(256)) * 40, "a damaged gzip file"),
        "open.json": (b'{"traceEvents": [', "cut off before the first whole event"),
        "bracket.json": (b"[", "cut off before the first whole event"),
        "brace.json": (b'{"schemaVersion": 1, "tra', "no traceEvents in it"),
    }
    for name, (content, why) in contents.items():
        path = tmp_path / name
        path.write_bytes(content)
        assert why in refused(path)
    assert "expected a Kineto trace" in refused(tmp_path / "other.json")


def test_a_folder_or_a_missing_file_is_refused_in_one_line(tmp_path: Path) -> None:
    assert refused(tmp_path).endswith("Is a directory")
    assert refused(tmp_path / "none.json").endswith("No such file or directory")


def test_every_shared_case_reads_as_its_kind_demands(shared: Path) -> None:
    cases = shared / "cases"
    plain = rows_of(read(cases / "plain" / "rank0.json"))
    expected: dict[str, tuple[Any, ...]] = {
        "infinity_in_args.json": (12, False, ["unreadable-values"]),
        "truncated_mid_string.json": (10, True, ["truncated"]),
        "truncated.json.gz": (8, True, ["truncated"]),
        "no_distributed_info.json": (12, False, ["rank-unknown"]),
        "distributed_info_last.json": (12, False, []),
        "bare_list_no_categories.json": (12, False, ["no-categories", "rank-unknown"]),
        "same_rank_twice/a.json": (12, False, []),
        "same_rank_twice/b.json": (12, False, []),
    }
    for name, (count, truncated, codes) in expected.items():
        trace = read(cases / name)
        assert (len(trace.events), trace.truncated) == (count, truncated), name
        assert [warning.code for warning in trace.warnings] == codes, name
        if "no_categories" not in name:
            assert rows_of(trace) == plain[:count], name
    for name in ("empty.json", "not_a_trace.json"):
        assert "expected a Kineto trace" in refused(cases / name)


def test_the_reading_thread_ends_with_the_reading(tmp_path: Path) -> None:
    """Also where the file is refused half-way."""
    path = tmp_path / "x.json"
    path.write_bytes(b"not JSON " * 2_000_000)
    refused(path)
    assert "stepscope-inflate" not in {thread.name for thread in threading.enumerate()}
