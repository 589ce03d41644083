"""Any bytes give an audit or one clear line. The long run of the same is `python -m benchmarks.fuzz`."""

from __future__ import annotations

import gzip
import json
import random
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from benchmarks.fuzz import broken_promise, files, seeds
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from stepscope.errors import InputError
from stepscope.trace import pieces
from stepscope.trace.reader import read

JOBS = seeds()
MB = 1 << 20
FEW = settings(
    max_examples=25,
    deadline=None,
    derandomize=True,
    database=None,
    phases=[Phase.generate],  # shrinking takes minutes; benchmarks.fuzz keeps what fails
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


def broken(folder: Path, contents: dict[str, bytes]) -> str | None:
    """What is wrong with the audit of a folder that holds these files."""
    folder.mkdir(exist_ok=True)
    for left in folder.iterdir():
        left.unlink()
    for name, content in contents.items():
        (folder / name).write_bytes(content)
    return broken_promise(folder)


@FEW
@given(st.randoms(use_true_random=False))
def test_a_real_trace_with_broken_bytes(tmp_path: Path, source: random.Random) -> None:
    assert broken(tmp_path / "run", dict(files(source, JOBS))) is None


@FEW
@given(st.binary(max_size=200), st.sampled_from([b"", b"{", b'{"traceEvents": [', b"[", b"\x1f\x8b\x08"]))
def test_bytes_of_any_kind(tmp_path: Path, content: bytes, before: bytes) -> None:
    assert broken(tmp_path / "run", {"rank0.pt.trace.json": before + content}) is None


NUMBERS = (
    st.integers()
    | st.floats()
    | st.sampled_from([10**30, -(10**30), 2**63, -(2**63), 4 * 10**15, "7", "1e99"])
)
VALUES = st.recursive(
    NUMBERS | st.booleans() | st.none() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=2),
    max_leaves=6,
)
KINDS = [
    ("kernel", "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"),
    ("kernel", "gemm"),
    ("gpu_memcpy", "Memcpy DtoD (Device -> Device)"),
    ("cuda_runtime", "cudaLaunchKernel"),
    ("cuda_runtime", "cudaStreamSynchronize"),
    ("cpu_op", "aten::mm"),
    ("cpu_op", "c10d::allreduce_"),
    ("cpu_op", "torch::autograd::AccumulateGrad"),
    ("cpu_op", "autograd::engine::evaluate_function: torch::autograd::AccumulateGrad"),
    ("user_annotation", "gloo:all_reduce"),
    ("user_annotation", "ProfilerStep#3"),
    ("user_annotation", "Optimizer.step#AdamW.step"),
    ("user_annotation", "DistributedDataParallel.forward"),
]
FIELDS = (
    "correlation",
    "stream",
    "device",
    "External id",
    "In msg nelems",
    "Group size",
    "Seq",
    "dtype",
    "Input Dims",
)


@st.composite
def events(draw: st.DrawFn) -> dict[str, Any]:
    """One event of a kind that matters, its times near the others' or anything at all."""
    cat, name = draw(st.sampled_from(KINDS))
    near = st.integers(0, 40)
    event = {
        "ph": "X",
        "cat": cat,
        "name": name,
        "pid": draw(st.integers(0, 1) | NUMBERS),
        "tid": draw(st.integers(0, 2) | NUMBERS),
        "ts": draw(near | NUMBERS),
        "dur": draw(near | NUMBERS),
        "args": draw(st.dictionaries(st.sampled_from(FIELDS), st.integers(0, 3) | VALUES, max_size=4)),
    }
    if draw(st.integers(0, 20)) == 0:
        event[draw(st.sampled_from(sorted(event)))] = draw(VALUES)
    return event


@FEW
@given(
    st.lists(st.lists(events(), min_size=1, max_size=12), min_size=1, max_size=2),
    st.dictionaries(st.sampled_from(["distributedInfo", "deviceProperties", "baseTimeNanoseconds"]), VALUES),
)
def test_events_of_the_right_names_with_any_values(
    tmp_path: Path, ranks: list[list[dict[str, Any]]], header: dict[str, Any]
) -> None:
    """Negative and overrunning durations, kernels before their launch, huge numbers, strings for numbers, NaN."""
    contents = {
        f"rank{rank}.json": json.dumps({**header, "traceEvents": rows}).encode()
        for rank, rows in enumerate(ranks)
    }
    assert broken(tmp_path / "run", contents) is None


EVENT = b'{"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1, "ts": %d, "dur": 1}'
START = b'{"traceEvents": [' + EVENT % 1 + b"," + EVENT % 2 + b","


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b" " * 20 * MB, "the file is empty"),
        (b"{" + b" " * 20 * MB, "no traceEvents in it"),
        (b'{"a": "' + b"x" * 20 * MB, "no traceEvents in it"),
        (b'{"a": [' + b'"traceEvents": [1], ' * 400_000, "no traceEvents in it"),
        (b'{"traceEvents": [' + b" " * 20 * MB, "an event of over 8 MB"),
        (START + b'{"name": "' + b"x" * 20 * MB, "an event of over 8 MB"),
        (START[:-1] + b'], "end": "' + b"x" * 20 * MB, "an event of over 8 MB"),
    ],
    ids=["blank", "blank header", "long header", "decoys", "blank list", "long event", "long end"],
)
def test_what_fills_memory_is_refused_before_it_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes, message: str
) -> None:
    """With a limit of 8 MB in the place of 64: nothing is kept or looked at again beyond it."""
    monkeypatch.setattr(pieces, "_LIMIT_BYTES", 8 * MB)
    path = tmp_path / "rank0.json.gz"
    path.write_bytes(gzip.compress(content, 1))
    with pytest.raises(InputError, match=message):
        read(path)


def test_an_open_bracket_that_swallows_the_rest_costs_its_own_event(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pieces, "_LIMIT_BYTES", 8 * MB)
    rest = b",".join(EVENT % time for time in range(3, 130_003))
    path = tmp_path / "rank0.json"
    path.write_bytes(START + b'{"ph": "X", "args": {"a": [' + EVENT % 0 + b"," + rest + b"]}")
    trace = read(path)
    assert len(trace.events) == 130_002
    assert "unreadable-events" in [warning.code for warning in trace.warnings]


@pytest.mark.parametrize("value", [b'"' + b'\\"' * 500_000, b"nan(" * 250_000, b"[" * 500_000])
def test_mending_takes_no_longer_than_the_text_is_long(tmp_path: Path, value: bytes) -> None:
    """Each of these once took hours: the end of a string or bracket was looked for from every place in it."""
    path = tmp_path / "rank0.json"
    path.write_bytes(START + b'{"name": inf}, {"name": ' + value + b"}]}")
    try:
        assert len(read(path).events) == 2
    except InputError as error:
        assert str(error) == f"{path}: nested too deeply to be a Kineto trace"


@pytest.mark.parametrize("time", ["1e2000000", "-1e2000000", '"1e2000000"', "9" * 5000])
def test_a_time_too_large_for_arithmetic_is_unreadable(tmp_path: Path, time: str) -> None:
    path = tmp_path / "rank0.json"
    path.write_bytes(START + EVENT.replace(b"%d", time.encode()) + b"]}")
    trace = read(path)
    assert (len(trace.events), trace.warnings[-2].code) == (2, "unreadable-events")


def test_a_full_disk_leaves_no_half_file(tmp_path: Path) -> None:
    run = tmp_path / "run"
    run.mkdir()
    for name, content in files(random.Random(1), [[text] for text in JOBS[0]]):
        (run / name).write_bytes(content)
    done = subprocess.run(
        [sys.executable, "-m", "stepscope", "audit", str(run), "--json", str(tmp_path / "audit.json")],
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100)),
    )
    assert done.returncode == 2
    assert [line.split(":")[0] for line in done.stderr.splitlines()] == ["stepscope"]
    assert [path.name for path in tmp_path.iterdir()] == ["run"]
