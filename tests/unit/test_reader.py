"""The reader on well-formed traces of every dialect: exact columns, header, names of threads, arguments."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from build_trace import AUTOGRAD, GLOO_WORKERS, TraceBuilder
from plain_reading import load, plain_rows, rows_of
from stepscope.trace.columns import NO_ID, Category, CommArguments, Shapes, Trace
from stepscope.trace.reader import read, read_in_pieces


def step() -> TraceBuilder:
    """A step with one bucket: two kernels, an all-reduce, a copy."""
    trace = TraceBuilder(rank=1, world_size=4, base_ns=1_700_000_000_000_000_000)
    trace.step(5, 1000, 600)
    trace.kernel("gemm_forward", launched=1040.25, start=1100, duration=100.125)
    trace.backward("MmBackward0", 1060, 20)
    trace.kernel("gemm_backward", launched=1065, start=1200.125, duration=100, thread=AUTOGRAD)
    trace.accumulate_grad(1085, 20)
    trace.collective(
        "allreduce", launched=1090, start=1250, duration=100, elements=1 << 20, sequence=7, thread=AUTOGRAD
    )
    trace.memcpy("Memcpy DtoH (Device -> Pageable)", start=1400, duration=2.001, launched=1390)
    trace.optimizer(1420, 30)
    return trace


def written(folder: Path, document: Any, name: str = "rank1.json") -> Trace:
    path = folder / name
    path.write_text(json.dumps(document))
    return read(path)


def codes(trace: Trace) -> list[str]:
    return [warning.code for warning in trace.warnings]


def test_every_column_holds_what_the_file_says(tmp_path: Path) -> None:
    trace = read(step().write(tmp_path / "rank1.json"))
    events = trace.events
    names = [trace.names[index] for index in events.name]
    kernel = names.index("gemm_forward")
    assert events.category[kernel] == Category.KERNEL
    assert (events.start[kernel], events.duration[kernel], events.end[kernel]) == (100_000, 100_125, 200_125)
    assert (events.device[kernel], events.stream[kernel], events.correlation[kernel]) == (0, 7, 101)
    launch = names.index("cudaLaunchKernel")
    assert events.category[launch] == Category.RUNTIME
    assert (events.start[launch], events.duration[launch]) == (40_250, 3_000)
    assert (events.pid[launch], events.tid[launch], events.correlation[launch]) == (10, 10, 101)
    assert (events.device[launch], events.stream[launch]) == (NO_ID, NO_ID)
    copy = names.index("Memcpy DtoH (Device -> Pageable)")
    assert (events.category[copy], events.duration[copy]) == (Category.MEMCPY, 2_001)
    assert trace.base_ns == 1_700_000_000_001_000_000
    assert (trace.truncated, trace.warnings) == (False, ())


@pytest.mark.parametrize("header_last", [False, True])
@pytest.mark.parametrize("name", ["rank1.json", "rank1.json.gz"])
def test_the_header_is_read_before_and_after_the_events(tmp_path: Path, name: str, header_last: bool) -> None:
    builder = step()
    builder.header |= {"host_name": "node3", "with_stack": 1, "record_shapes": 0}
    header = read(builder.write(tmp_path / name, header_last=header_last)).header
    assert (header.rank, header.world_size, header.backend, header.host) == (1, 4, "nccl", "node3")
    assert header.device_names == ("NVIDIA A100-SXM4-80GB",)
    assert header.groups == ({"pg_name": "0", "pg_desc": "default_pg", "pg_size": 4, "ranks": [0, 1, 2, 3]},)
    assert (header.with_stack, header.record_shapes) == (True, False)


def test_a_gzip_of_several_members_is_one_text(tmp_path: Path) -> None:
    text = json.dumps(step().document()).encode()
    path = tmp_path / "rank1.json.gz"
    path.write_bytes(gzip.compress(text[:700]) + gzip.compress(text[700:]) + b"\0" * 512)
    trace = read(path)
    assert rows_of(trace) == plain_rows(json.loads(text))
    assert trace.warnings == ()


def test_gzip_is_told_by_its_bytes_and_not_by_the_name(tmp_path: Path) -> None:
    zipped = step().write(tmp_path / "a.json.gz")
    (tmp_path / "rank1.json").write_bytes(zipped.read_bytes())
    assert rows_of(read(tmp_path / "rank1.json")) == rows_of(read(zipped))


def test_the_arguments_of_a_collective_are_kept_with_its_kernel_and_its_operator(tmp_path: Path) -> None:
    trace = read(step().write(tmp_path / "rank1.json"))
    names = [trace.names[index] for index in trace.events.name]
    expected = CommArguments(
        collective="allreduce",
        elements_in=1 << 20,
        elements_out=1 << 20,
        dtype="Float",
        group_name="0",
        group_description="default_pg",
        group_size=4,
        group_ranks=(0, 1, 2, 3),
        sequence=7,
    )
    operator = names.index("record_param_comms")
    kernel = next(row for row, name in enumerate(names) if name.startswith("ncclDevKernel"))
    assert trace.comm_arguments == {operator: expected, kernel: expected}


def test_abbreviated_group_ranks_are_unknown_and_not_wrong(tmp_path: Path) -> None:
    builder = step()
    for event in builder.events:
        if "Process Group Ranks" in event.get("args", {}):
            event["args"]["Process Group Ranks"] = "[0, 1, ..., 4095]"
            event["args"]["Group size"] = "4096"
    trace = read(builder.write(tmp_path / "rank1.json"))
    assert {(a.group_ranks, a.group_size) for a in trace.comm_arguments.values()} == {(None, 4096)}


def test_shapes_are_kept_for_communication_and_gradients_and_for_nothing_else(tmp_path: Path) -> None:
    builder = TraceBuilder(rank=0, backend="gloo")
    builder.cpu_op("aten::mm", 0, 5, dims=[[2, 3], [3, 4]], types=["float", "float"])
    builder.cpu_op("torch::distributed::reducer::mul_out", 6, 1, dims=[[256]], types=["float"])
    builder.gloo("all_reduce", 20, 30, elements=131584, launched=10)
    trace = read(builder.write(tmp_path / "rank0.json"))
    kept = {trace.names[trace.events.name[row]]: shapes for row, shapes in trace.shapes.items()}
    assert kept == {
        "torch::distributed::reducer::mul_out": Shapes([[256]], ["float"]),
        "c10d::allreduce_": Shapes([[[131584]], [], []], ["TensorList", "", ""]),
        "gloo:all_reduce": Shapes([[131584]], ["float"]),
    }


def test_of_a_threads_names_the_most_telling_is_kept(tmp_path: Path) -> None:
    builder = TraceBuilder(rank=0, backend="gloo")
    worker = GLOO_WORKERS[0]
    builder.name_thread(worker, "python3")
    builder.gloo("all_reduce", 20, 30, elements=8, launched=10)
    builder.name_thread(worker, "pt_main_thread")
    builder.name_thread(10, "python3")
    builder.name_thread(11, "pt_main_thread")
    builder.name_thread(11, "pt_autograd_0")
    trace = read(builder.write(tmp_path / "rank0.json"))
    assert trace.thread_names == {
        (10, worker): "pt_gloo_runloop",
        (10, 10): "python3",
        (10, 11): "pt_autograd_0",
    }


def test_absolute_times_with_nanoseconds_are_exact(tmp_path: Path) -> None:
    """As floats, microseconds since the epoch are a quarter of a microsecond apart."""
    path = tmp_path / "rank0.json"
    path.write_text(
        '{"distributedInfo": {"rank": 0}, "traceEvents": ['
        '{"ph": "X", "cat": "cpu_op", "name": "a", "pid": 1, "tid": 1, "ts": 1712195495519689.047, "dur": 63.813},'
        '{"ph": "X", "cat": "cpu_op", "name": "b", "pid": 1, "tid": 1, "ts": 1712195495519695.812, "dur": 53.090},'
        '{"ph": "X", "cat": "cpu_op", "name": "c", "pid": 1, "tid": 1, "ts": "1712195495519700.001", "dur": "1"},'
        '{"ph": "X", "cat": "cpu_op", "name": "d", "pid": 1, "tid": 1, "ts": 1712195495519701, "dur": 1e1}'
        "]}"
    )
    trace = read(path)
    assert trace.events.start.tolist() == [0, 6_765, 10_954, 11_953]
    assert trace.events.duration.tolist() == [63_813, 53_090, 1_000, 10_000]
    assert trace.base_ns == 1_712_195_495_519_689_047


@pytest.mark.parametrize("start", [4_458_676_522_690, 4_398_046_511_104, 8_796_093_022_206])
def test_relative_times_are_exact_up_to_a_hundred_days(tmp_path: Path, start: int) -> None:
    """Floats of this size are a nanosecond apart, so a product that is rounded twice would be off by one."""
    times = [f"{start}.{fraction:03d}" for fraction in range(1000)]
    rows = ", ".join(
        f'{{"ph": "X", "cat": "cpu_op", "name": "a", "pid": 1, "tid": 1, "ts": {time}, "dur": 0.001}}'
        for time in times
    )
    path = tmp_path / "rank0.json"
    path.write_text(f'{{"baseTimeNanoseconds": 1000, "traceEvents": [{rows}]}}')
    trace = read(path)
    np.testing.assert_array_equal(trace.events.start, np.arange(1000))
    assert trace.base_ns == start * 1000 + 1000


def test_integer_float_and_string_times_are_one_and_the_same(tmp_path: Path) -> None:
    builder = TraceBuilder(rank=0)
    for name, start in (("a", 1000), ("b", 1000.0), ("c", "1000"), ("d", "1000.000")):
        builder.span("cpu_op", name, start, 5)  # type: ignore[arg-type]
    builder.span("cpu_op", "e", 1000.001, "2.5")  # type: ignore[arg-type]
    builder.end(1005)
    trace = read(builder.write(tmp_path / "rank0.json"))
    assert trace.events.start.tolist() == [0, 0, 0, 0, 1]
    assert trace.events.duration.tolist() == [5000, 5000, 5000, 5000, 2500]


def test_numeric_strings_are_numbers_and_other_names_of_threads_get_their_own(tmp_path: Path) -> None:
    builder = TraceBuilder(rank=0)
    builder.span("cpu_op", "a", 0, 1, pid="10", thread="11")
    builder.span("cpu_op", "b", 0, 1, pid=10, thread="worker")
    builder.span("cpu_op", "c", 0, 1, pid="host", thread="worker")
    builder.span("kernel", "k", 0, 1, pid="device 1", thread="stream 7")
    events = read(builder.write(tmp_path / "rank0.json")).events
    assert (events.pid[0], events.tid[0], events.pid[1]) == (10, 11, 10)
    assert events.tid[1] == events.tid[2] < 0
    assert events.pid[2] < 0
    assert (events.device[3], events.stream[3]) == (1, 7)


def test_a_device_activity_without_device_and_stream_takes_those_of_its_row(tmp_path: Path) -> None:
    builder = TraceBuilder(rank=0)
    builder.span("kernel", "k", 0, 1, pid=3, thread=20, args={"correlation": 5})
    builder.span("gpu_memset", "m", 0, 1, pid=3, thread=20)
    events = read(builder.write(tmp_path / "rank0.json")).events
    assert events.device.tolist() == [3, 3]
    assert events.stream.tolist() == [20, 20]
    assert events.correlation.tolist() == [5, NO_ID]


def test_a_stream_handle_of_a_rocm_launch_is_no_stream(tmp_path: Path) -> None:
    builder = TraceBuilder(rank=0)
    args = {"stream": "0x0", "correlation": 117, "kernel": "k"}
    builder.span("cuda_runtime", "hipLaunchKernel", 0, 1, args=args)
    events = read(builder.write(tmp_path / "rank0.json")).events
    assert (events.stream[0], events.correlation[0]) == (NO_ID, 117)


@pytest.mark.parametrize(
    ("spelling", "category"),
    [
        ("cpu_op", Category.CPU_OP),
        ("Operator", Category.CPU_OP),
        ("user_annotation", Category.USER_ANNOTATION),
        ("cuda_runtime", Category.RUNTIME),
        ("cuda_driver", Category.RUNTIME),
        ("Runtime", Category.RUNTIME),
        ("hip_runtime", Category.RUNTIME),
        ("xpu_runtime", Category.RUNTIME),
        ("mtia_runtime", Category.RUNTIME),
        ("privateuse1_runtime", Category.RUNTIME),
        ("kernel", Category.KERNEL),
        ("Kernel", Category.KERNEL),
        ("gpu_memcpy", Category.MEMCPY),
        ("Memcpy", Category.MEMCPY),
        ("gpu_memset", Category.MEMSET),
        ("cuda_sync", Category.CUDA_SYNC),
        ("overhead", Category.OVERHEAD),
    ],
)
def test_the_spellings_of_a_category(tmp_path: Path, spelling: str, category: Category) -> None:
    builder = TraceBuilder(rank=0)
    builder.span(spelling, "x", 0, 1)
    assert read(builder.write(tmp_path / "rank0.json")).events.category.tolist() == [category]


def test_flows_python_frames_and_device_annotations_are_left_out(tmp_path: Path) -> None:
    builder = step()
    expected = plain_rows(builder.document())
    for category in ("ac2g", "async_cpu_to_gpu", "fwdbwd"):
        for phase in "sf":
            flow = {
                "ph": phase,
                "id": 101,
                "pid": 10,
                "tid": 10,
                "ts": 1041,
                "cat": category,
                "name": category,
            }
            builder.events.insert(3, flow)
    builder.span("python_function", "train.py(3): step", 900, 900)
    builder.span("gpu_user_annotation", "ProfilerStep#5", 1100, 300, pid=0, thread=7)
    builder.span("Trace", "PyTorch Profiler (0)", 800, 900, pid="Spans", thread="PyTorch Profiler")
    assert rows_of(read(builder.write(tmp_path / "rank1.json"))) == expected


def test_an_event_without_a_category_is_left_out_where_others_have_one(tmp_path: Path) -> None:
    builder = TraceBuilder(rank=0)
    builder.span(None, "without", 0, 1)
    builder.collective("allreduce", launched=10, start=20, duration=5, elements=4)
    trace = read(builder.write(tmp_path / "rank0.json"))
    names = [trace.names[index] for index in trace.events.name]
    assert "without" not in names
    assert [names[row] for row in trace.comm_arguments] == [names[0], names[2]]
    assert codes(trace) == []


def test_a_file_without_any_category_says_so(tmp_path: Path) -> None:
    builder = TraceBuilder(rank=0)
    builder.span(None, "a", 0, 1)
    builder.span(None, "b", 2, 1)
    trace = read(builder.write(tmp_path / "rank0.json"))
    assert trace.events.category.tolist() == [Category.CPU_OP, Category.CPU_OP]
    assert codes(trace) == ["no-categories"]


def test_a_bare_list_of_events_is_a_trace(tmp_path: Path) -> None:
    document = step().document()
    trace = written(tmp_path, document["traceEvents"])
    assert rows_of(trace) == plain_rows(document)
    assert (trace.header.rank, trace.truncated, codes(trace)) == (1, False, ["rank-from-file-name"])
    assert trace.base_ns == 1_000_000


@pytest.mark.parametrize(
    ("name", "rank"),
    [
        ("rank0.1694.pt.trace.json", 0),
        ("rank-34.Jul_15_10_52_41.1074.pt.trace.json", 34),
        ("rank_12.json", 12),
        ("worker7_step_12.1694128201553.pt.trace.json", 7),
        ("trace_rank3.json", 3),
        ("profile.rank=5.json", 5),
        ("RANK2.json", 2),
    ],
)
def test_the_rank_comes_from_the_file_name_where_the_file_has_none(
    tmp_path: Path, name: str, rank: int
) -> None:
    builder = step()
    del builder.header["distributedInfo"]
    trace = read(builder.write(tmp_path / name))
    assert (trace.header.rank, codes(trace)) == (rank, ["rank-from-file-name"])


@pytest.mark.parametrize("name", ["trace.json", "frank3.json", "step_12.json", "node7_1234.pt.trace.json"])
def test_the_rank_is_unknown_where_nothing_tells_it(tmp_path: Path, name: str) -> None:
    builder = step()
    del builder.header["distributedInfo"]
    trace = read(builder.write(tmp_path / name))
    assert (trace.header.rank, codes(trace)) == (None, ["rank-unknown"])


def test_the_file_knows_its_rank_better_than_its_name(tmp_path: Path) -> None:
    trace = read(step().write(tmp_path / "rank7.json"))
    assert (trace.header.rank, codes(trace)) == (1, [])


def test_an_odd_field_of_the_header_hides_no_other(tmp_path: Path) -> None:
    builder = step()
    builder.header["distributedInfo"] |= {"world_size": {"odd": 1}, "rank": "1", "pg_config": "none"}
    builder.header |= {"deviceProperties": None, "host_name": 5, "baseTimeNanoseconds": "1000"}
    trace = read(builder.write(tmp_path / "x.json"))
    assert (trace.header.rank, trace.header.world_size, trace.header.backend) == (1, None, "nccl")
    assert (trace.header.groups, trace.header.device_names, trace.header.host) == ((), (), None)
    assert trace.base_ns == 1_001_000


def test_without_correlation_ids_launches_are_linked_by_external_id(tmp_path: Path) -> None:
    builder = step()
    for event in builder.events:
        args = event.get("args", {})
        if "correlation" in args:
            args["External id"] = args.pop("correlation") + 1000
    trace = read(builder.write(tmp_path / "rank1.json"))
    linked = [row for row in rows_of(trace) if row[0] in (Category.RUNTIME, Category.KERNEL, Category.MEMCPY)]
    assert [row[6] for row in linked] == [1101, 1101, 1102, 1102, 1103, 1103, 1104, 1104]
    assert codes(trace) == ["linked-by-external-id"]


def test_without_any_link_phases_are_said_to_be_unknown(tmp_path: Path) -> None:
    builder = step()
    for event in builder.events:
        for key in ("correlation", "External id"):
            event.get("args", {}).pop(key, None)
    trace = read(builder.write(tmp_path / "rank1.json"))
    assert set(trace.events.correlation.tolist()) == {NO_ID}
    assert codes(trace) == ["no-correlation"]


def test_a_missing_window_end_is_noted_and_no_truncation(tmp_path: Path) -> None:
    builder = step()
    document = builder.document()
    document["traceEvents"].pop()
    trace = written(tmp_path, document)
    assert (trace.truncated, codes(trace)) == (False, ["no-window-end"])


@pytest.mark.parametrize("piece_bytes", [1 << 10, 30_000, 1 << 20])
def test_real_traces_read_in_pieces_as_they_do_whole(shared: Path, piece_bytes: int) -> None:
    traces = sorted((shared / "traces").glob("*/*.json.gz"))
    if piece_bytes == 1 << 10:  # thousands of pieces a megabyte: the small files will do
        traces = [path for path in traces if path.stat().st_size < 60_000]
    assert len(traces) >= 8
    for path in traces:
        document = load(path)
        trace = read_in_pieces(path, piece_bytes)
        assert rows_of(trace) == plain_rows(document), path.name
        assert not trace.truncated
        assert set(codes(trace)) <= {"rank-unknown"}
