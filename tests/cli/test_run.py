"""`stepscope run` from outside, with real gloo ranks: what it records, what it prints, how it ends, what it leaves."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import jsonschema
import msgspec
import pytest

from framework_runs import Recorded
from recordings import SCRIPTS, Finished, Started, read_trace, run, steps_in, trace_files, within
from stepscope.audit.result import Audit
from stepscope.capture.cost import profiler_cost
from stepscope.capture.metadata import RunMetadata, load_run
from stepscope.cli.main import main
from stepscope.ranks.pairing import pair
from stepscope.replay.graph import build
from stepscope.schema.generate import SCHEMA_FILE
from stepscope.trace.classify import classify
from stepscope.trace.reader import read

pytestmark = pytest.mark.slow

FORWARD = "DistributedDataParallel.forward"


@pytest.fixture(scope="module")
def finished(ddp_run: tuple[Finished, Path]) -> Finished:
    return ddp_run[0]


@pytest.fixture(scope="module")
def run_dir(ddp_run: tuple[Finished, Path]) -> Path:
    return ddp_run[1]


@pytest.fixture(scope="module")
def metadata(finished: Finished, run_dir: Path) -> RunMetadata:
    assert finished.code == 0, finished.stderr
    return load_run(run_dir)


@pytest.fixture(scope="module")
def traces(metadata: RunMetadata, run_dir: Path) -> list[dict[str, Any]]:
    assert metadata.world_size == 2
    return [read_trace(file) for file in trace_files(run_dir)]


class TestAPlainDdpScript:
    """One launch of ddp.py on the default two ranks with the default schedule."""

    def test_it_ends_well_and_names_what_it_wrote_last(self, finished: Finished, run_dir: Path) -> None:
        assert finished.code == 0
        assert finished.stdout.splitlines()[-1] == f"Wrote {run_dir}/audit.json"
        assert finished.leftovers == []
        assert (
            finished.stderr.splitlines()[0]
            == "stepscope: 2 processes (on the CPU, as there is no GPU); --nproc-per-node sets another number"
        )
        assert "USDT" not in finished.stderr
        assert "OMP_NUM_THREADS" not in finished.stderr

    def test_the_directory_holds_a_trace_a_rank_the_run_and_the_audit(
        self, finished: Finished, run_dir: Path
    ) -> None:
        assert finished.code == 0
        names = sorted(path.name for path in run_dir.iterdir())
        assert [re.sub(r"\.\d{19}\.", ".T.", name) for name in names] == [
            "audit.json",
            "rank0.T.pt.trace.json.gz",
            "rank1.T.pt.trace.json.gz",
            "run.json",
        ]

    def test_each_trace_holds_the_scripts_steps_six_to_eight(self, traces: list[dict[str, Any]]) -> None:
        for rank, trace in enumerate(traces):
            windows = steps_in(trace)
            assert list(windows) == [6, 7, 8]
            for window in windows.values():
                assert within(trace, FORWARD, window) == 1
                assert within(trace, "Optimizer.step#AdamW.step", window) == 1
                assert within(trace, "c10d::allreduce_", window) == 2
            assert all(windows[step][1] <= windows[step + 1][0] for step in (6, 7))
            information = trace["distributedInfo"]
            assert (information["rank"], information["world_size"], information["backend"]) == (
                rank,
                2,
                "gloo",
            )
            assert trace["record_shapes"] == 1

    def test_run_json_says_of_ddp_what_ddp_says_of_itself(
        self, finished: Finished, metadata: RunMetadata
    ) -> None:
        said = json.loads(finished.stdout.splitlines()[0])
        (module,) = metadata.ddp
        assert module.bucket_cap_bytes == said["bucket_cap_bytes"] == 512 * 1024
        assert ", ".join(map(str, module.initial_bucket_bytes)) == said["bucket_sizes"]
        assert ", ".join(map(str, module.rebuilt_bucket_bytes)) == said["rebuilt_bucket_sizes"]
        buckets = [" ".join(map(str, bucket)) for bucket in module.rebuilt_bucket_parameters]
        assert ", ".join(buckets) == said["rebuilt_per_bucket_param_indices"]
        ready = ", ".join(str(parameter.index) for parameter in module.parameters)
        assert module.in_ready_order
        assert ready == said["prev_iteration_grad_ready_order_indices"]
        assert (module.rebuilt, module.find_unused_parameters, module.static_graph) == (True, False, False)
        assert (module.broadcast_buffers, module.gradient_as_bucket_view, module.comm_hook) == (
            True,
            False,
            None,
        )
        sizes = {parameter.index: 4 * parameter.numel for parameter in module.parameters}
        assert module.rebuilt_bucket_bytes == [
            sum(sizes[index] for index in bucket) for bucket in module.rebuilt_bucket_parameters
        ]
        assert {parameter.name for parameter in module.parameters} == {
            f"{layer}.0.{kind}" for layer in range(4) for kind in ("weight", "bias")
        }

    def test_run_json_says_what_ran_where_and_with_which_settings(
        self, metadata: RunMetadata, run_dir: Path
    ) -> None:
        assert metadata.command == ["stepscope", "run", "--out", str(run_dir), "ddp.py"]
        assert metadata.script == "ddp.py"
        assert metadata.hosts == [socket.gethostname()]
        assert metadata.backend == "gloo"
        assert set(metadata.versions) == {"python", "torch", "numpy"}
        assert metadata.environment["OMP_NUM_THREADS"] == "1"
        assert "OMP_NUM_THREADS" in metadata.set_by_launcher
        assert (metadata.warmup, metadata.steps, metadata.recorded_steps) == (6, 3, [6, 7, 8])
        assert [(o.name, o.steps, o.is_clock) for o in metadata.optimizers] == [("AdamW", 13, True)]
        assert [(r.rank, r.local_rank, r.status, r.exit_code) for r in metadata.ranks] == [
            (0, 0, "ended", None),
            (1, 1, "ended", None),
        ]

    def test_the_profilers_cost_is_measured_on_six_steps_a_rank_beside_the_three(
        self, metadata: RunMetadata
    ) -> None:
        kinds = {rank.rank: {time.step: time.kind for time in rank.step_times} for rank in metadata.ranks}
        expected = {1: "start-up", 5: "profiler-warm-up", 9: "after-export"}
        expected |= dict.fromkeys((2, 3, 4, 10, 11, 12), "unprofiled") | dict.fromkeys((6, 7, 8), "recorded")
        assert kinds == {0: expected, 1: expected}
        cost = metadata.profiler_cost
        assert cost == profiler_cost(time for rank in metadata.ranks for time in rank.step_times)
        assert cost is not None
        assert (cost.unprofiled_steps, cost.recorded_steps) == (12, 6)
        assert cost.ratio_ci[0] <= cost.ratio <= cost.ratio_ci[1]

    def test_the_steps_times_are_the_windows_of_the_trace(
        self, metadata: RunMetadata, traces: list[dict[str, Any]]
    ) -> None:
        for rank, trace in zip(metadata.ranks, traces, strict=True):
            for step, (begin, end) in steps_in(trace).items():
                (timed,) = [time for time in rank.step_times if time.step == step]
                assert timed.wall_ms == pytest.approx((end - begin) / 1e3, rel=0.5)

    def test_the_audit_is_of_these_traces(self, finished: Finished, run_dir: Path) -> None:
        assert finished.code == 0
        raw = (run_dir / "audit.json").read_bytes()
        jsonschema.validate(json.loads(raw), json.loads(SCHEMA_FILE.read_text("utf-8")))
        audit = msgspec.json.decode(raw, type=Audit)
        assert [[step.step for step in rank.steps] for rank in audit.ranks] == [[6, 7, 8], [6, 7, 8]]

    def test_every_steps_gradients_are_one_reduction_for_each_of_ddps_buckets(
        self, finished: Finished, metadata: RunMetadata, run_dir: Path
    ) -> None:
        audit = msgspec.json.decode((run_dir / "audit.json").read_bytes(), type=Audit)
        gradients = Recorded(finished, metadata, audit).gradients()
        assert set(gradients) == {(rank, step) for rank in (0, 1) for step in (6, 7, 8)}
        buckets = metadata.ddp[0].rebuilt_bucket_bytes
        assert sum(buckets) == 4 * 4 * (256 * 256 + 256)
        for found in gradients.values():
            assert [c.bytes for c in sorted(found, key=lambda c: c.launch_ms or 0.0)] == buckets
            assert {(c.kind, c.phase, c.dtype) for c in found} == {("all_reduce", "backward", "float32")}

    def test_every_steps_exposed_time_has_names_that_add_up(self, finished: Finished, run_dir: Path) -> None:
        """Within 0.1 %, and at most 2 % of it without one."""
        assert finished.code == 0
        audit = msgspec.json.decode((run_dir / "audit.json").read_bytes(), type=Audit)
        for step in (step for rank in audit.ranks for step in rank.steps):
            assert step.waterfall is not None
            parts = {name: getattr(step.waterfall, name) or 0.0 for name in step.waterfall.__struct_fields__}
            assert sum(parts.values()) == pytest.approx(step.exposed_ms, rel=1e-3, abs=1e-6)
            assert parts["unattributed_ms"] <= 0.02 * step.exposed_ms

    def test_a_replay_that_changes_nothing_is_each_of_its_steps(
        self, finished: Finished, run_dir: Path
    ) -> None:
        assert finished.code == 0
        recordings = [classify(read(file)) for file in trace_files(run_dir)]
        pairing = pair(recordings)
        for number in (6, 7, 8):
            graph = build(recordings, pairing, number)
            assert graph is not None
            assert graph.replay().wall == pytest.approx(graph.measured, abs=1)
            assert graph.impossible == 0

    def test_a_directory_in_use_is_refused(
        self,
        metadata: RunMetadata,
        run_dir: Path,
        monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str],
    ) -> None:
        assert metadata.recorded_steps
        monkeypatch.chdir(SCRIPTS)
        assert main(["run", "--out", str(run_dir), "ddp.py"]) == 2
        assert capsys.readouterr().err.splitlines()[-1] == (
            f"stepscope: error: {run_dir} is not empty; pass --force to replace a recording in it, "
            "or name another with --out"
        )


class TestARankThatFails:
    def test_its_failure_is_one_line_and_what_was_recorded_is_kept(self, tmp_path: Path) -> None:
        run_dir = tmp_path / "run"
        finished = run(
            "--out", run_dir, "--warmup", "2", "--steps", "4", "--nproc-per-node", "2", "dies.py", "--at", "4"
        )
        assert finished.code == 2
        assert finished.leftovers == []
        assert finished.last_error_line == (
            "stepscope: error: rank 1 failed with exit code 1 at step 4 (RuntimeError: out of luck); "
            f"the traces of ranks 0, 1 are kept in {run_dir}"
        )
        assert "stepscope: the script ended after 2 of 4 recorded steps" in finished.stderr.splitlines()
        assert (
            "RuntimeError: out of luck" in finished.stderr
        )  # the script's own traceback, and no frame of ours
        assert "stepscope/capture" not in finished.stderr
        assert "ChildFailedError" not in finished.stderr
        assert f"Wrote {run_dir}/audit.json" in finished.stdout
        metadata = load_run(run_dir)
        assert [(rank.status, rank.recorded_steps, rank.unfinished_step) for rank in metadata.ranks] == [
            ("failed", [2, 3], 4),
            ("failed", [2, 3], 4),
        ]
        assert [list(steps_in(read_trace(file))) for file in trace_files(run_dir)] == [[2, 3], [2, 3]]

    def test_one_that_is_killed_after_the_recording_costs_nothing_of_it(self, tmp_path: Path) -> None:
        flags = ("--warmup", "1", "--steps", "2", "--nproc-per-node", "2", "--json", "-")
        finished = run("--out", tmp_path, *flags, "dies.py", "--at", "8", "--how", "kill")
        assert finished.code == 2
        assert finished.last_error_line == (
            f"stepscope: error: rank 1 was killed by SIGKILL; the traces of ranks 0, 1 are kept in {tmp_path}"
        )
        assert [len(rank["steps"]) for rank in json.loads(finished.stdout)["ranks"]] == [2, 2]


def test_a_script_without_an_optimizer_runs_and_is_told_so(tmp_path: Path) -> None:
    finished = run("--out", tmp_path, "--nproc-per-node", "1", "no_step.py")
    assert (finished.code, finished.stdout) == (2, "trained by hand\n")
    assert finished.stderr == (
        "stepscope: error: the script made no optimizer step; "
        "mark its steps by hand with `stepscope.record` (see its help)\n"
    )


def test_loader_processes_and_an_abrupt_exit_are_no_obstacle(tmp_path: Path) -> None:
    finished = run("--out", tmp_path, "--warmup", "2", "--steps", "9", "--nproc-per-node", "1", "workers.py")
    assert finished.code == 0, finished.stderr
    assert finished.stdout.splitlines()[0] == "saw 552"
    assert finished.leftovers == []
    (rank,) = load_run(tmp_path).ranks
    assert (rank.recorded_steps, rank.status) == ([2, 3, 4, 5, 6, 7, 8, 9, 10], "ended")
    assert rank.problem is None


@pytest.mark.parametrize("how", [("surroundings.py",), ("-m", "surroundings")])
def test_a_script_sees_what_it_sees_without_us(tmp_path: Path, how: tuple[str, ...]) -> None:
    arguments = ["a b", "--steps", "7", "--out", "x", "--", "-h"]
    plain = subprocess.run(
        [sys.executable, *how, *arguments], cwd=SCRIPTS, capture_output=True, text=True, check=True
    )
    recorded = run("--out", tmp_path, "--nproc-per-node", "1", *how, *arguments)
    assert recorded.stdout == plain.stdout
    assert json.loads(plain.stdout)["sibling"] == "the profiler.py of the user"


def test_ctrl_c_stops_the_ranks_and_audits_what_is_there(tmp_path: Path) -> None:
    started = Started("--out", tmp_path, "--nproc-per-node", "2", "ddp.py", "--steps", "1000000")
    deadline = time.monotonic() + 120
    while not list(tmp_path.glob("rank1.*.gz")) and time.monotonic() < deadline:
        time.sleep(0.1)
    time.sleep(1)
    started.process.send_signal(signal.SIGINT)
    finished = started.finish()
    assert finished.code == 130
    assert finished.leftovers == []
    assert (
        finished.last_error_line
        == f"stepscope: stopped by SIGINT; the traces of ranks 0, 1 are kept in {tmp_path}"
    )
    assert finished.stdout.splitlines()[-1] == f"Wrote {tmp_path}/audit.json"
    assert load_run(tmp_path).recorded_steps == [6, 7, 8]


def test_a_scheduler_that_ends_every_process_twice_leaves_what_was_recorded(tmp_path: Path) -> None:
    """As SLURM does it when a job is cancelled: SIGTERM to all at once, and again by way of srun."""
    run_dir = tmp_path / "run"
    started = Started(
        "--out", run_dir, "--steps", "100000", "--nproc-per-node", "2", "counted.py", str(tmp_path)
    )
    counts = [tmp_path / f"steps{rank}" for rank in (0, 1)]
    deadline = time.monotonic() + 120
    while not all(count.exists() and count.stat().st_size > 20 for count in counts):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    for _time in range(2):
        for process in started.leftovers():
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGTERM)
    finished = started.finish()
    assert (finished.code, finished.leftovers) == (128 + signal.SIGTERM, [])
    assert (
        finished.last_error_line
        == f"stepscope: stopped by SIGTERM; the traces of ranks 0, 1 are kept in {run_dir}"
    )
    assert load_run(run_dir).recorded_steps[:3] == [6, 7, 8]


def test_stop_ends_a_long_training_on_all_ranks_once_everything_is_measured(tmp_path: Path) -> None:
    run_dir = tmp_path / "run"
    schedule = ("--warmup", "4", "--steps", "2", "--stop", "--json", tmp_path / "a.json")
    finished = run("--out", run_dir, *schedule, "--nproc-per-node", "2", "ddp.py", "--steps", "1000000")
    assert finished.code == 0, finished.stderr
    assert "runs on" not in finished.stderr
    assert finished.stdout.splitlines()[-2:] == [f"Wrote {tmp_path}/a.json", f"Wrote {run_dir}/audit.json"]
    assert (tmp_path / "a.json").read_bytes() == (run_dir / "audit.json").read_bytes()
    metadata = load_run(run_dir)
    assert [rank.steps_seen for rank in metadata.ranks] == [10, 10]
    assert metadata.recorded_steps == [4, 5]


def test_a_port_in_use_is_one_line_and_leaves_nothing(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        finished = run("--out", tmp_path / "run", "--master-port", port, "--nproc-per-node", "1", "ddp.py")
    assert (finished.code, finished.stdout) == (2, "")
    assert finished.stderr == (
        f"stepscope: error: port {port} is in use; pass another --master-port (or --rdzv-endpoint), "
        "or none on a single node\n"
    )
    assert not (tmp_path / "run").exists()
