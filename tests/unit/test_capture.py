"""Capture's plain parts: which optimizer is the clock, what is kept with a run, what a failure is called."""

from __future__ import annotations

import threading
import time
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path

import pytest

from stepscope.capture.clock import MAX_ROUNDS_ABSENT, StepClock
from stepscope.capture.config import CaptureConfig
from stepscope.capture.cost import profiler_cost
from stepscope.capture.environment import overlap_settings
from stepscope.capture.launch import LaunchStatus, RankFailure, rank_environment
from stepscope.capture.merge import Command, merge
from stepscope.capture.metadata import RankMetadata, RankRecord, RunMetadata, StepTime, load_run, write_json
from stepscope.capture.outcome import launch_error, what_failed, what_is_kept
from stepscope.capture.rundir import default_name, make_run_dir
from stepscope.capture.target import Target, find_target
from stepscope.errors import InputError


class TestStepClock:
    @pytest.mark.parametrize(
        ("cycle", "expected"),
        [("A", "A"), ("DG", "G"), ("DDDDDG", "G"), ("GD", "D"), ("ABC", "C"), ("DDG1", "1"), ("GDD", "G")],
    )
    def test_after_two_cycles_the_clock_ticks_once_a_cycle(self, cycle: str, expected: str) -> None:
        clock, ticks = StepClock(), Counter[str]()
        for position, key in enumerate(cycle * 6):
            clock.observe(ord(key))
            if clock.key == ord(key) and position >= 2 * len(cycle):
                ticks[key] += 1
        assert ticks == {expected: 4}
        assert clock.steps == 6

    def test_an_optimizer_that_stopped_stepping_is_the_clock_no_more(self) -> None:
        clock = StepClock()
        clock.observe(1)
        for _ in range(MAX_ROUNDS_ABSENT + 1):
            clock.observe(2)
        assert (clock.key, clock.steps) == (2, MAX_ROUNDS_ABSENT + 1)

    def test_before_any_step_there_is_no_clock(self) -> None:
        assert (StepClock().key, StepClock().steps) == (None, 0)


def test_only_variables_that_change_overlap_are_kept() -> None:
    kept = {
        "NCCL_ALGO": "Ring",
        "TORCH_NCCL_ASYNC_ERROR_HANDLING": "1",
        "CUDA_DEVICE_MAX_CONNECTIONS": "1",
        "GLOO_SOCKET_IFNAME": "eth0",
        "OMP_NUM_THREADS": "4",
    }
    others = {"HOME": "/root", "AWS_SECRET_ACCESS_KEY": "x", "OMP_NUM_THREADS_": "1", "MY_NCCL_DEBUG": "1"}
    assert overlap_settings({**others, **kept}) == dict(sorted(kept.items()))


@pytest.mark.parametrize(
    ("environment", "processes", "gpus", "expected"),
    [
        ({}, 2, 2, {"OMP_NUM_THREADS": "1"}),
        ({}, 1, 1, {}),
        ({"OMP_NUM_THREADS": "4"}, 2, 1, {"OMP_NUM_THREADS": "4"}),
        ({"KINETO_LOG_LEVEL": "0"}, 1, 0, {"KINETO_LOG_LEVEL": "0"}),
        ({}, 1, 0, {"KINETO_LOG_LEVEL": "6"}),
    ],
)
def test_ranks_get_the_users_environment_and_torchruns_default(
    environment: dict[str, str], processes: int, gpus: int, expected: dict[str, str]
) -> None:
    assert rank_environment(environment, processes, gpus) == expected


def step_time(kind: str, wall_ms: float, device_ms: float | None = None) -> StepTime:
    return StepTime(step=0, wall_ms=wall_ms, kind=kind, device_ms=device_ms)


class TestProfilerCost:
    def test_it_is_the_ratio_of_medians_with_an_interval(self) -> None:
        plain = [step_time("unprofiled", ms) for ms in (10.0, 11.0, 30.0)]
        recorded = [step_time("recorded", ms) for ms in (22.0, 20.0, 24.0)]
        cost = profiler_cost(
            [*plain, *recorded, step_time("start-up", 900.0), step_time("after-export", 900.0)]
        )
        assert cost is not None
        assert (cost.unprofiled_ms, cost.recorded_ms, cost.ratio) == (11.0, 22.0, 2.0)
        assert (cost.unprofiled_steps, cost.recorded_steps) == (3, 3)
        assert list(cost.ratio_ci) == pytest.approx([20 / 30, 2.4])

    def test_device_times_go_before_wall_times(self) -> None:
        cost = profiler_cost([step_time("unprofiled", 1.0, 40.0), step_time("recorded", 9.0, 50.0)])
        assert cost is not None
        assert (cost.ratio, cost.ratio_ci) == (1.25, (1.25, 1.25))

    def test_without_both_kinds_there_is_none(self) -> None:
        assert profiler_cost([step_time("recorded", 9.0)]) is None


class TestTarget:
    def test_a_file_goes_before_a_workload_of_its_name(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(tmp_path)
        assert find_target("gpt", module=False) == Target("stepscope_workloads.train", module=True)
        Path("gpt").touch()
        assert find_target("gpt", module=False) == Target("gpt", module=False)

    def test_a_module_beside_the_user_is_found(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(tmp_path)
        Path("my_training.py").touch()
        assert find_target("my_training", module=True) == Target("my_training", module=True)
        with pytest.raises(InputError, match="no module named 'my_trainings' here or installed"):
            find_target("my_trainings", module=True)

    def test_what_is_neither_gets_a_list_of_what_there_is(self) -> None:
        with pytest.raises(
            InputError, match=r"no script 'trian.py', and no workload of that name; workloads: gpt"
        ):
            find_target("trian.py", module=False)


class TestRunDirectory:
    STARTED = datetime(2026, 3, 4, 5, 6, 7, tzinfo=UTC)

    def test_its_default_name_is_the_time(self) -> None:
        assert default_name(self.STARTED) == "stepscope-run-20260304T050607Z"

    def test_one_that_holds_something_is_refused(self, tmp_path: Path) -> None:
        (tmp_path / "notes.txt").touch()
        with pytest.raises(InputError, match="is not empty; pass --force"):
            make_run_dir(tmp_path, self.STARTED, force=False, shared=False)

    def test_force_replaces_a_recording_and_nothing_else(self, tmp_path: Path) -> None:
        for name in ("notes.txt", "run.json", "audit.json", "rank0.1.pt.trace.json.gz", "rank10.meta.json"):
            (tmp_path / name).touch()
        make_run_dir(tmp_path, datetime.fromtimestamp(time.time() + 9, UTC), force=True, shared=False)
        assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]

    def test_what_another_node_has_begun_stays(self, tmp_path: Path) -> None:
        other = tmp_path / "rank0.meta.json"
        other.touch()
        make_run_dir(tmp_path, datetime.fromtimestamp(time.time() - 9, UTC), force=False, shared=True)
        assert other.exists()

    def test_a_file_in_its_place_is_an_error_in_one_line(self, tmp_path: Path) -> None:
        (tmp_path / "file").touch()
        with pytest.raises(InputError, match="as run directory: File exists; name another with --out"):
            make_run_dir(tmp_path / "file", self.STARTED, force=True, shared=False)


def rank_metadata(rank: int, **changes: object) -> RankMetadata:
    plain: dict[str, object] = {
        "rank": rank,
        "local_rank": rank,
        "world_size": 2,
        "host": "a",
        "pid": 1,
        "launch_id": "one",
        "state": "ended",
        "written_ns": 1_000,
        "steps_seen": 9,
        "device": "cpu",
        "backend": "gloo",
        "environment": {"NCCL_ALGO": "Ring", "OMP_NUM_THREADS": "1"},
    }
    return RankMetadata(**{**plain, **changes})  # type: ignore[arg-type]


COMMAND = Command(
    arguments=["stepscope", "run", "train.py"],
    script="train.py",
    started=datetime(2026, 3, 4, 5, 6, 7, tzinfo=UTC),
    config=CaptureConfig(run_dir="", launch_id="one"),
    known_environment=frozenset({"NCCL_ALGO", "HOME"}),
)


class TestMerge:
    def write(self, run_dir: Path, *ranks: RankMetadata) -> None:
        for rank in ranks:
            write_json(run_dir / f"rank{rank.rank}.meta.json", rank)

    def test_the_ranks_files_become_one(self, tmp_path: Path) -> None:
        self.write(
            tmp_path,
            rank_metadata(0, trace="rank0.gz", recorded_steps=[6, 7, 8]),
            rank_metadata(1, trace="rank1.gz", recorded_steps=[6, 7], steps_seen=8, error="OSError: lost"),
        )
        run = merge(tmp_path, COMMAND, {1: 3, 5: -9})
        assert run is not None
        assert run == load_run(tmp_path)
        assert [path.name for path in tmp_path.iterdir()] == ["run.json"]
        assert run.recorded_steps == [6, 7]
        assert (run.started, run.set_by_launcher) == ("2026-03-04T05:06:07+00:00", ["OMP_NUM_THREADS"])
        assert [(rank.rank, rank.status, rank.exit_code, rank.steps_seen) for rank in run.ranks] == [
            (0, "ended", None, 9),
            (1, "failed", 3, 8),
            (5, "failed", -9, None),
        ]

    def test_the_node_of_the_lowest_rank_writes_for_all_that_share_a_directory(self, tmp_path: Path) -> None:
        self.write(tmp_path, rank_metadata(0, launch_id="other"), rank_metadata(1))
        assert merge(tmp_path, COMMAND, {}) is None
        assert len(list(tmp_path.iterdir())) == 2

    def test_it_waits_for_ranks_of_another_launch_that_have_begun(self, tmp_path: Path) -> None:
        self.write(tmp_path, rank_metadata(0), rank_metadata(1, launch_id="other", state="running"))
        ended = threading.Timer(
            0.2, self.write, (tmp_path, rank_metadata(1, launch_id="other", trace="rank1.gz"))
        )
        ended.start()
        run = merge(tmp_path, COMMAND, {})
        ended.join()
        assert run is not None
        assert [(rank.rank, rank.status, rank.trace) for rank in run.ranks] == [
            (0, "ended", None),
            (1, "ended", "rank1.gz"),
        ]
        assert [path.name for path in tmp_path.iterdir()] == ["run.json"]

    def test_without_any_rank_there_is_nothing_to_write(self, tmp_path: Path) -> None:
        assert merge(tmp_path, COMMAND, {}) is None


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "no run.json at"),
        (b"[]", "as stepscope.run/1: Expected `object`"),
        (b"{", "as stepscope.run/1"),
    ],
)
def test_a_run_json_that_cannot_be_read_is_named(tmp_path: Path, content: bytes | None, message: str) -> None:
    if content is not None:
        (tmp_path / "run.json").write_bytes(content)
    with pytest.raises(InputError, match=message):
        load_run(tmp_path)


def run_of(*ranks: RankRecord) -> RunMetadata:
    return RunMetadata(
        stepscope="0",
        command=[],
        script="train.py",
        started="",
        world_size=len(ranks),
        backend="gloo",
        hosts=[],
        versions={},
        environment={},
        warmup=6,
        steps=3,
        with_stack=False,
        recorded_steps=[],
        ranks=list(ranks),
    )


class TestWhatFailed:
    RUN_DIR = Path("runs/one")

    def test_the_first_rank_to_end_is_named_though_its_peer_failed_of_it(self) -> None:
        outcome = LaunchStatus(kind="failed", failures=[RankFailure(0, 1), RankFailure(1, 7)])
        run = run_of(
            RankRecord(
                rank=0, status="failed", ended_ns=20, steps_seen=5, error="RuntimeError: peer", trace="a"
            ),
            RankRecord(rank=1, status="failed", ended_ns=10, steps_seen=4, error="SystemExit: 7", trace="b"),
        )
        assert what_failed(outcome, run, self.RUN_DIR) == (
            "rank 1 failed with exit code 7 at step 4 (SystemExit: 7); the traces of ranks 0, 1 are kept in runs/one"
        )

    def test_a_rank_that_died_without_a_word_goes_before_one_that_raised(self) -> None:
        outcome = LaunchStatus(kind="failed", failures=[RankFailure(0, 1), RankFailure(1, -9)])
        run = run_of(
            RankRecord(rank=0, status="failed", ended_ns=20, steps_seen=5, trace="a"),
            RankRecord(rank=1, status="failed"),
        )
        assert (
            what_failed(outcome, run, self.RUN_DIR)
            == "rank 1 was killed by SIGKILL; the trace of rank 0 is kept in runs/one"
        )

    def test_ranks_that_torchrun_took_down_are_not_the_reason(self) -> None:
        outcome = LaunchStatus(kind="failed", failures=[RankFailure(0, -15), RankFailure(1, 1)])
        assert (
            what_failed(outcome, None, self.RUN_DIR) == "rank 1 failed with exit code 1; no step was recorded"
        )

    def test_a_node_that_writes_no_results_leaves_the_word_to_the_one_that_does(self, tmp_path: Path) -> None:
        (tmp_path / "rank1.1.pt.trace.json.gz").touch()
        assert what_is_kept(None, tmp_path) == f"the node of rank 0 says what is kept in {tmp_path}"

    def test_a_run_that_went_well_has_nothing_to_tell(self) -> None:
        assert what_failed(LaunchStatus(kind="done"), None, self.RUN_DIR) is None

    @pytest.mark.parametrize(
        ("message", "line"),
        [
            (
                "DistNetworkError: failed to listen. port: 29500, useIpv6: false, name: EADDRINUSE",
                "port 29500 is in use; pass another --master-port (or --rdzv-endpoint), or none on a single node",
            ),
            (
                "RendezvousTimeoutError",
                "the nodes did not find each other: RendezvousTimeoutError; check --rdzv-endpoint, --nnodes and --rdzv-id",
            ),
            (
                "ValueError: Cuda is not\navailable.",
                "torchrun could not start: ValueError: Cuda is not available.",
            ),
        ],
    )
    def test_torchruns_own_failures_get_a_line_with_a_way_out(self, message: str, line: str) -> None:
        assert launch_error(message) == line
