"""The perfetto report: the trace as it was, and tracks whose figures are audit.json's."""

from __future__ import annotations

import gzip
import io
import json
from collections import defaultdict
from pathlib import Path
from typing import Any, NoReturn

import msgspec
import pytest

from build_trace import AUTOGRAD, TraceBuilder
from stepscope.audit.result import Audit, Finding
from stepscope.cli.audit import audit_paths
from stepscope.cli.main import main
from stepscope.errors import InputError
from stepscope.trace.discover import find_traces
from stepscope_reports.perfetto import render

STEP_US = 1000
STEPS = range(5, 8)
SCRIPT = '<script>alert("|`")</script>'


def write_trace(
    file: Path, rank: int = 0, *, late: float = 0, ahead: float = 0, base_ns: int | None = 0
) -> Path:
    """Three steps of two buckets; the first all-reduce runs 320-600, the second 600-800, on every rank.

    late: us by which this rank joins the first later. ahead: us by which its host's clock is.
    """
    trace = TraceBuilder(rank=rank, world_size=2, base_ns=base_ns)
    trace.header["host_name"] = f"node{rank}"
    trace.span("cpu_op", SCRIPT, ahead + 1, 2.125)
    for index, number in enumerate(STEPS):
        origin = ahead + index * STEP_US
        trace.step(number, origin, STEP_US)
        trace.kernel("gemm", launched=origin + 40, start=origin + 100, duration=100)
        trace.backward("MmBackward0", origin + 60, 20)
        trace.kernel("gemm", launched=origin + 65, start=origin + 200, duration=300, thread=AUTOGRAD)
        for bucket, start in enumerate((320 + late, 600)):
            at = origin + 85 + 40 * bucket
            trace.accumulate_grad(at, 30)
            trace.kernel("copy", launched=at + 1, start=at + 200, duration=10.125, stream=8, thread=AUTOGRAD)
            trace.collective(
                "allreduce",
                launched=at + 5,
                start=origin + start,
                duration=(600 - start) if bucket == 0 else 200,
                elements=1 << 18,
                sequence=2 * index + bucket,
            )
        trace.optimizer(origin + 180, 30)
        trace.kernel("adam", launched=origin + 185, start=origin + 850, duration=50)
        trace.runtime("cudaStreamSynchronize", origin + 250, 700)
    trace.events += [
        {"ph": phase, "id": 7, "cat": "ac2g", "name": "ac2g", "pid": 10, "tid": 10, "ts": ahead + 5}
        for phase in "sf"
    ]
    trace.events.append(
        {"ph": "M", "name": "process_name", "pid": 10, "ts": ahead, "args": {"name": "python"}}
    )
    trace.events.append(
        {"ph": "M", "name": "process_sort_index", "pid": 10, "ts": ahead, "args": {"sort_index": 10}}
    )
    trace.span("Trace", "PyTorch Profiler", ahead, 3000, pid="Spans", thread="PyTorch Profiler")
    return trace.write(file)


def refuse(word: str) -> NoReturn:
    raise AssertionError(f"{word} is no JSON")


def written(audit: Audit) -> dict[str, Any]:
    """The report, read by a parser that takes strict JSON only."""
    stream = io.BytesIO()
    render(audit, stream)
    document: dict[str, Any] = json.loads(stream.getvalue(), parse_constant=refuse)
    return document


def tracks(document: dict[str, Any], pid: int = 2_000_000_000) -> dict[str, list[dict[str, Any]]]:
    """The slices of one of our processes, by the name of their track."""
    mine = [event for event in document["traceEvents"] if event["pid"] == pid]
    names = {event["tid"]: event["args"]["name"] for event in mine if event["name"] == "thread_name"}
    found = defaultdict(list)
    for event in mine:
        if event["ph"] == "X":
            found[names[event["tid"]]].append(event)
    return dict(found)


def plain(value: msgspec.Struct) -> Any:
    return json.loads(msgspec.json.encode(value))


@pytest.fixture
def one(tmp_path: Path) -> Audit:
    return audit_paths([str(write_trace(tmp_path / "rank0.pt.trace.json"))])


@pytest.fixture
def two(tmp_path: Path) -> Audit:
    """Rank 1 joins 80 us late, and its host's clock is 500 us ahead."""
    write_trace(tmp_path / "rank0.pt.trace.json")
    write_trace(tmp_path / "rank1.pt.trace.json", 1, late=80, ahead=500)
    return audit_paths([str(tmp_path)])


def test_every_field_and_event_of_the_trace_stays_as_it_is(one: Audit) -> None:
    original = json.loads(Path(one.ranks[0].source).read_text("utf-8"))
    document = written(one)
    assert document["traceEvents"][: len(original["traceEvents"])] == original["traceEvents"]
    assert {name: document[name] for name in original if name != "traceEvents"} == {
        name: value for name, value in original.items() if name != "traceEvents"
    }


def test_the_audit_of_the_report_is_the_audit_of_the_trace(one: Audit, tmp_path: Path) -> None:
    copy = tmp_path / "copy" / Path(one.ranks[0].source).name
    copy.parent.mkdir()
    with copy.open("wb") as stream:
        render(one, stream)
    again = plain(audit_paths([str(copy)]))
    expected = plain(one)
    for found in (again, expected):
        for row in (*found["ranks"], *found["collectives"], *found["warnings"]):
            row.pop("source", None)
    assert again == expected


def test_slices_carry_the_figures_of_the_audit(two: Audit) -> None:
    document = written(two)
    for index, rank in enumerate(two.ranks):
        shown = tracks(document, 2_000_000_000 + index)
        verdict, *steps = [event["args"] for event in shown["verdict and steps"]]
        assert verdict == plain(two.verdict)
        expected = [plain(step) for step in rank.steps]
        for step in expected:
            step.pop("timeline")
        assert steps == expected
        mine = [plain(row) for row in two.collectives if row.source == rank.source]
        assert [event["args"] for event in shown["buckets"]] == mine
        waits = [e["args"]["wait_ms"] for e in shown["waits"] if e["name"] == "waiting for a late rank"]
        assert waits == [row["wait_ms"] for row in mine if row["wait_ms"]]
        exposed = [span for step in rank.steps if step.timeline for span in step.timeline.exposed]
        assert [event["dur"] for event in shown["exposed"]] == [
            pytest.approx((end - start) * 1000) for start, end in exposed
        ]


def test_a_finding_lies_on_the_steps_and_ranks_that_it_names(two: Audit) -> None:
    finding = Finding(
        cause=SCRIPT,
        severity="high",
        cost_ms=0.25,
        confidence="high",
        steps=[6],
        ranks=[1],
        evidence=["| a `b`\n<c>"],
        fix="none",
    )
    document = written(msgspec.structs.replace(two, findings=[finding]))
    assert "findings" not in tracks(document)
    (slice_,) = tracks(document, 2_000_000_001)["findings"]
    assert slice_["name"] == f"{SCRIPT}: 0.250 ms a step"
    assert slice_["args"] == plain(finding)
    step = two.ranks[1].steps[1]
    assert slice_["dur"] == pytest.approx(step.wall_ms * 1000)


def test_tracks_follow_the_rules_of_the_format(two: Audit) -> None:
    document = written(two)
    ours = [event for event in document["traceEvents"] if event.get("cat") == "stepscope"]
    assert {event["ph"] for event in ours} == {"M", "X", "C"}
    assert all(
        isinstance(event[name], float) for event in ours if event["ph"] == "X" for name in ("ts", "dur")
    )
    for index in range(2):
        for name, slices in tracks(document, 2_000_000_000 + index).items():
            open_until: list[float] = []
            for event in slices:
                start, end = event["ts"], event["ts"] + event["dur"]
                while open_until and open_until[-1] <= start + 1e-4:
                    open_until.pop()
                assert not open_until or end <= open_until[-1] + 1e-4, (name, event)
                open_until.append(end)


def test_what_runs_at_the_same_time_is_spread_over_tracks(one: Audit) -> None:
    first, second, *rest = one.collectives
    beside = msgspec.structs.replace(second, start_ms=first.start_ms + 0.01)
    document = written(msgspec.structs.replace(one, collectives=[first, beside, *rest]))
    shown = tracks(document)
    assert [event["name"] for event in shown["buckets (2)"]] == ["bucket 1: all_reduce 1.0 MiB"]
    counts = [event["args"]["collectives"] for event in document["traceEvents"] if event["ph"] == "C"]
    assert max(counts) == 2
    assert counts[-1] == 0


def test_ranks_share_one_time_axis_and_no_process(two: Audit) -> None:
    document = written(two)
    events = document["traceEvents"]
    names = {event["pid"]: event["args"]["name"] for event in events if event["name"] == "process_name"}
    assert list(names.values()) == [
        "rank 0: python",
        "rank 1: python",
        "stepscope: rank 0",
        "stepscope: rank 1",
    ]
    ends = defaultdict(list)
    for event in events:
        if event.get("cat") == "kernel" and "AllReduce" in event["name"]:
            ends[event["args"]["Seq"]].append((event["pid"], round(event["ts"] + event["dur"], 3)))
    assert len(ends) == 6
    for (first, end), (second, other) in ends.values():
        assert first != second
        assert end == pytest.approx(other, abs=0.002)
    assert len({event["id"] for event in events if event["ph"] == "s"}) == 2
    assert {event["pid"] for event in events if event.get("cat") == "Trace"} == {
        "rank 0: Spans",
        "rank 1: Spans",
    }
    orders = [event["args"]["sort_index"] for event in events if event["name"] == "process_sort_index"]
    assert orders == [10, (1 << 30) + 10, -1, (1 << 30) - 1]
    assert "distributedInfo" not in document


def test_the_tracks_of_each_rank_lie_on_its_own_events(two: Audit) -> None:
    events = written(two)["traceEvents"]
    kernels = [e["ts"] for e in events if e.get("cat") == "kernel" and "AllReduce" in e["name"]]
    buckets = [e["ts"] for e in events if e.get("cat") == "stepscope" and e["name"].startswith("bucket ")]
    assert buckets == [pytest.approx(ts, abs=0.002) for ts in kernels]


def test_absolute_times_keep_their_nanoseconds(tmp_path: Path) -> None:
    source = write_trace(tmp_path / "rank0.pt.trace.json", ahead=1_700_000_000_000_000, base_ns=None)
    text = source.read_text("utf-8")
    assert '"ts": 1700000000000320,' in text
    source.write_text(text.replace('"ts": 1700000000000320,', '"ts": 1700000000000320.789,'), "utf-8")
    stream = io.BytesIO()
    render(audit_paths([str(source)]), stream)
    assert b'"ts":1700000000000320.789,"dur":280.000' in stream.getvalue()


def test_times_that_count_from_a_base_behind_the_events_are_found(tmp_path: Path) -> None:
    source = write_trace(tmp_path / "rank0.pt.trace.json", base_ns=1_790_857_026_000_000_000)
    document = json.loads(source.read_text("utf-8"))
    base = document.pop("baseTimeNanoseconds")
    source.write_text(json.dumps(document | {"baseTimeNanoseconds": base}), "utf-8")
    starts = [event["ts"] for event in tracks(written(audit_paths([str(source)])))["buckets"]]
    assert starts[:2] == [320.0, 600.0]


def test_what_json_cannot_say_comes_mended(tmp_path: Path) -> None:
    source = write_trace(tmp_path / "rank0.pt.trace.json")
    damaged = source.read_text("utf-8").replace('"cbid": 211', '"cbid": inf')
    source.write_text(damaged, "utf-8")
    assert "inf" in damaged
    document = written(audit_paths([str(source)]))
    assert {
        event["args"]["cbid"] for event in document["traceEvents"] if "cbid" in event.get("args", {})
    } == {None}


def test_a_trace_in_a_store_is_to_be_copied_first(one: Audit) -> None:
    there = msgspec.structs.replace(one.ranks[0], source="s3://bucket/rank0.pt.trace.json")
    with pytest.raises(
        InputError, match=r"s3://bucket/rank0\.pt\.trace\.json: the trace is in a store, copy it"
    ):
        render(msgspec.structs.replace(one, ranks=[there]), io.BytesIO())


def test_a_trace_that_is_gone_is_one_line_and_leaves_no_file(one: Audit, tmp_path: Path) -> None:
    Path(one.ranks[0].source).unlink()
    with pytest.raises(InputError, match=r"rank0\.pt\.trace\.json: the trace is not there any more"):
        render(one, io.BytesIO())


def test_a_report_named_gz_is_gzipped(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = write_trace(tmp_path / "rank0.pt.trace.json")
    output = tmp_path / "tracks.json.gz"
    assert main(["audit", str(source), "--report", "perfetto", "-o", str(output)]) == 0
    assert capsys.readouterr().out == f"Wrote {output}\n"
    with gzip.open(output) as stream:
        assert "stepscopeTracks" in json.load(stream)


def test_a_report_beside_the_traces_is_not_audited_with_them(two: Audit, tmp_path: Path) -> None:
    joined = tmp_path / "tracks.json"
    with joined.open("wb") as stream:
        render(two, stream)
    assert [path.name for path in find_traces([str(tmp_path)])] == [
        "rank0.pt.trace.json",
        "rank1.pt.trace.json",
    ]
    with pytest.raises(InputError, match=r"tracks\.json: 2 traces joined for Perfetto; audit those"):
        find_traces([str(joined)])
