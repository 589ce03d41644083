"""The replay of GPU steps whose recording says who waited for what. Times in us."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from build_trace import COMM_STREAM, COMPUTE_STREAM, MAIN, TraceBuilder
from stepscope.audit.build import audit
from stepscope.ranks.pairing import pair
from stepscope.replay.change import Change
from stepscope.replay.graph import StepGraph, build
from stepscope.trace.classify import classify
from stepscope.trace.columns import WaitedEvent
from stepscope.trace.reader import read
from stepscope_workloads.simulate import Job, Simulation

SIDE_STREAM = 9


def graph(folder: Path, trace: TraceBuilder) -> StepGraph:
    recordings = [classify(read(trace.write(folder / "rank0.json")))]
    built = build(recordings, pair(recordings), 5)
    assert built is not None
    assert built.replay().wall == pytest.approx(built.measured, abs=1)
    assert built.impossible == 0
    return built


def step(length: float = 720) -> TraceBuilder:
    """A collective on the wire from 110 to 500, a kernel on a third stream until 495."""
    trace = TraceBuilder()
    trace.step(5, 0, length)
    trace.kernel("first", launched=10, start=20, duration=80)
    trace.collective("allreduce", launched=30, start=110, duration=390, elements=1000, thread=MAIN)
    trace.kernel("aside", launched=40, start=50, duration=445, stream=SIDE_STREAM)
    return trace


def finish(trace: TraceBuilder, *, launched: float = 60, start: float = 503) -> None:
    """A kernel of 150 us on the compute stream; the host waits for the device and goes on 5 after it."""
    trace.kernel("last", launched=launched, start=start, duration=150)
    end = start + 150
    trace.runtime("cudaDeviceSynchronize", launched + 20, end + 5 - launched - 20)


def wait_for(trace: TraceBuilder, stream: int) -> None:
    """The compute stream is told at 56 to wait for what a stream was given before 55."""
    event = (stream, trace.event_record(55))
    trace.synchronise("cudaStreamWaitEvent", "Stream Wait Event", 56, event=event)


def cost(built: StepGraph) -> float:
    return built.cost()[0] / 1e3


def test_without_a_record_a_kernel_waits_for_what_ended_just_before_it(tmp_path: Path) -> None:
    """The collective, as the times have it: without it the device is done when the kernel aside is, at 495 and not at 653."""
    trace = step()
    finish(trace)
    assert cost(graph(tmp_path, trace)) == 653 - 495


def test_a_recorded_wait_is_for_the_stream_it_names_whatever_ended_in_between(tmp_path: Path) -> None:
    trace = step()
    wait_for(trace, SIDE_STREAM)
    finish(trace)
    assert cost(graph(tmp_path, trace)) == 0


def test_a_recorded_wait_for_the_collective_is_drawn_too(tmp_path: Path) -> None:
    trace = step()
    wait_for(trace, COMM_STREAM)
    finish(trace)
    assert cost(graph(tmp_path, trace)) == 653 - 495


def test_a_recorded_wait_that_kept_nobody_waiting_matters_once_the_wire_is_slower(tmp_path: Path) -> None:
    """The kernel was launched at 560, so nothing in its times tells that it needs the collective."""
    trace = step(900)
    event = (COMM_STREAM, trace.event_record(550))
    trace.synchronise("cudaStreamWaitEvent", "Stream Wait Event", 551, event=event)
    finish(trace, launched=560, start=570)
    built = graph(tmp_path, trace)
    slower = built.replay(Change(transfers=dict.fromkeys(built.numbers, 2.0)))
    assert cost(built) == 0
    assert (slower.wall[0] - built.measured[0]) / 1e3 == 110 + 2 * 390 - 570


def test_an_event_stands_for_what_its_stream_was_given_before_it_was_recorded(tmp_path: Path) -> None:
    """Recorded at 25, before the collective's launch: there was nothing on the stream to wait for."""
    trace = step()
    event = (COMM_STREAM, trace.event_record(25))
    trace.synchronise("cudaStreamWaitEvent", "Stream Wait Event", 56, event=event)
    finish(trace, start=200)
    built = graph(tmp_path, trace)
    assert cost(built) == 0


@pytest.mark.parametrize(
    ("call", "kind"), [("cudaStreamSynchronize", "Stream Sync"), ("cudaEventSynchronize", "Event Sync")]
)
@pytest.mark.parametrize(("stream", "expected"), [(SIDE_STREAM, 0), (COMM_STREAM, 665 - 495)])
def test_a_recorded_host_wait_is_for_the_stream_it_names(
    call: str, kind: str, stream: int, expected: float, tmp_path: Path
) -> None:
    """It returns at 502, when both the collective (500) and the kernel aside (495) are over.

    Without the collective the kernel that follows is over before the one aside.
    """
    trace = step()
    event = (stream, trace.event_record(55)) if kind == "Event Sync" else None
    trace.synchronise(call, kind, 60, 442, stream=stream, event=event)
    trace.kernel("last", launched=510, start=515, duration=150)
    trace.runtime("cudaDeviceSynchronize", 520, 150)
    assert cost(graph(tmp_path, trace)) == expected


@pytest.mark.parametrize(
    ("kept", "known", "sentence"),
    [
        ([True, True], "recorded", "Who waits for whom is what the profiler recorded."),
        (
            [True, False],
            "partly recorded",
            "recorded on some ranks and is inferred from times on the others.",
        ),
        ([False, False], "inferred", "was not recorded and is inferred from times."),
    ],
)
def test_an_audit_says_how_it_is_known_who_waits_for_whom(
    kept: list[bool], known: str, sentence: str, tmp_path: Path
) -> None:
    job = Job(ranks=2, steps=2, sync_events=True)
    recordings = []
    for rank, document in enumerate(Simulation(job).documents()):
        if not kept[rank]:
            rows = document["traceEvents"]
            document["traceEvents"] = [row for row in rows if row.get("cat") != "cuda_sync"]
        path = tmp_path / f"rank{rank}.json"
        path.write_text(json.dumps(document))
        recordings.append(classify(read(path)))
    verdict = audit(recordings).verdict
    assert verdict.waits == known
    assert sentence in verdict.explanation


def test_the_reader_keeps_which_event_a_row_waits_for(tmp_path: Path) -> None:
    """A row whose record is unknown (Kineto writes -1) keeps none."""
    trace = TraceBuilder()
    trace.synchronise("cudaStreamWaitEvent", "Stream Wait Event", 5, event=(17, 33))
    trace.synchronise("cudaStreamWaitEvent", "Stream Wait Event", 8, event=(-1, -1))
    trace.synchronise("cudaStreamSynchronize", "Stream Sync", 9)
    read_back = read(trace.write(tmp_path / "rank0.json"))
    assert list(read_back.waited_events.values()) == [WaitedEvent(17, 33)]
    (row,) = read_back.waited_events
    assert (read_back.names[read_back.events.name[row]], read_back.events.stream[row]) == (
        "Stream Wait Event",
        COMPUTE_STREAM,
    )
