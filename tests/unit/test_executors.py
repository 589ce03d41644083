"""Who reads the ranks' traces makes no difference to what is found in them."""

from __future__ import annotations

import gzip
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing
from importlib import import_module
from pathlib import Path

import msgspec
import pytest

from stepscope.audit import build
from stepscope.audit.build import audit
from stepscope.audit.result import Audit
from stepscope.errors import InputError
from stepscope.executors import choose
from stepscope.executors.choose import executor, workers_for
from stepscope.executors.executor import Here
from stepscope.executors.on_dask import Cluster
from stepscope.executors.pool import Pool
from stepscope.executors.ranks import read_ranks
from stepscope.executors.work import outcome
from stepscope.ranks.pairing import pair
from stepscope.ranks.representatives import among, representatives
from stepscope.trace.files import RemoteFile, TraceFile
from stepscope.trace.recording import Recording
from stepscope_workloads.simulate import Job, Simulation, parse

RANKS = 6


@pytest.fixture(scope="module")
def traces(tmp_path_factory: pytest.TempPathFactory) -> list[TraceFile]:
    folder = tmp_path_factory.mktemp("ranks")
    job = Job(ranks=RANKS, steps=2, causes=(parse("straggler:rank=4,ms=20"),), with_stack=True)
    files: list[TraceFile] = []
    for rank, document in enumerate(Simulation(job).documents()):
        files.append(folder / f"rank{rank}.1.pt.trace.json.gz")
        Path(str(files[-1])).write_bytes(gzip.compress(json.dumps(document).encode(), 1))
    return files


def audited(recordings: list[Recording]) -> bytes:
    return msgspec.json.encode(audit(recordings))


def found(files: Sequence[TraceFile], engine: str) -> bytes:
    return audited(read_ranks(files, engine).recordings)


@pytest.fixture(scope="module")
def here(traces: list[TraceFile]) -> bytes:
    return found(traces, "local:1")


class TestTheSameAudit:
    def test_is_made_of_what_several_processes_read(self, traces: list[TraceFile], here: bytes) -> None:
        assert found(traces, "local:3") == here

    def test_of_real_traces(self, shared: Path) -> None:
        files = sorted((shared / "traces" / "param_dlrm_v100_8ranks").glob("*.json.gz"))
        assert found(files, "local:2") == found(files, "local:1")

    @pytest.mark.slow
    def test_is_made_of_what_a_dask_cluster_reads(
        self, traces: list[TraceFile], here: bytes, cluster: str
    ) -> None:
        assert found(traces, f"dask://{cluster}") == here

    @pytest.mark.slow
    def test_names_the_file_that_a_worker_of_the_cluster_cannot_read(
        self, traces: list[TraceFile], cluster: str, tmp_path: Path
    ) -> None:
        (tmp_path / "rank9.json").write_text("no trace")
        read = read_ranks([traces[0], tmp_path / "rank9.json"], f"dask://{cluster}")
        assert len(read.recordings) == 1
        assert "rank9.json: not JSON" in str(read.unreadable[0][1])


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A scheduler and a worker of it, each a process of its own; the scheduler's address."""
    folder = tmp_path_factory.mktemp("dask")
    place = folder / "scheduler.json"
    common = ["--scheduler-file", str(place), "--no-dashboard"]
    commands = (
        ["scheduler", "--host", "127.0.0.1", "--port", "0", *common],
        ["worker", "--nthreads", "1", "--nanny-port", "0", "--no-nanny", *common],
    )
    started = []
    try:
        for command in commands:
            started.append(
                subprocess.Popen(
                    [sys.executable, "-m", "dask", *command],
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    cwd=folder,
                )
            )
        distributed = import_module("distributed")

        with distributed.Client(scheduler_file=str(place), timeout=60, set_as_default=False) as client:
            client.wait_for_workers(1, timeout=60)
        yield json.loads(place.read_text())["address"].removeprefix("tcp://")
    finally:
        for process in reversed(started):
            process.terminate()
            process.wait()


class TestAFileThatIsNoTrace:
    @pytest.mark.parametrize("engine", ["local:1", "local:2"])
    def test_is_left_out_and_named(self, traces: list[TraceFile], tmp_path: Path, engine: str) -> None:
        (tmp_path / "rank9.json").write_text("no trace")
        files = [traces[0], tmp_path / "rank9.json", traces[1]]
        read = read_ranks(files, engine)
        assert [recording.source for recording in read.recordings] == [str(traces[0]), str(traces[1])]
        ((file, error),) = read.unreadable
        assert file == files[1]
        assert str(error).startswith(f"{file}: not JSON")

    def test_is_the_error_where_all_are_none(self, tmp_path: Path) -> None:
        files: list[TraceFile] = []
        for rank in range(3):
            files.append(tmp_path / f"rank{rank}.json")
            (tmp_path / f"rank{rank}.json").write_text("no trace")
        with pytest.raises(InputError, match=r"rank2\.json: not JSON"):
            read_ranks(files, "local:2")


class TestThePool:
    def test_outlives_a_worker_that_is_killed_and_says_which_file_it_read(
        self, traces: list[TraceFile]
    ) -> None:
        with closing(Pool(1)) as pool:
            assert isinstance(next(pool.recordings(traces[:1], whole=True)), Recording)
            (worker,) = pool._started
            os.kill(worker.pid, signal.SIGKILL)
            first, second = pool.recordings(traces[:2], whole=True)
        assert isinstance(first, InputError)
        assert f"{traces[0]}: the process that read it was killed by SIGKILL" in str(first)
        assert isinstance(second, Recording)

    def test_leaves_no_process_when_its_reader_stops_early(self, traces: list[TraceFile]) -> None:
        with closing(Pool(2)) as pool:
            next(pool.recordings(traces, whole=False))
            started = list(pool._started)
        assert started
        assert all(worker.returncode is not None for worker in started)


class TestOfManyRanks:
    def test_only_the_traces_of_their_representatives_are_kept(self, traces: list[TraceFile]) -> None:
        read = read_ranks(traces, "local:1", most=4)
        kept = [place for place, one in enumerate(read.recordings) if len(one.trace.events)]
        assert len(kept) == 4
        assert 4 in kept  # the rank that the others wait for
        whole = read_ranks(traces, "local:1")
        for few, all_of_it in zip(read.recordings, whole.recordings, strict=True):
            assert few.collectives == all_of_it.collectives
            assert few.compute.end.tolist() == all_of_it.compute.end.tolist()


class TestRepresentatives:
    def test_are_all_ranks_where_those_are_few(self, traces: list[TraceFile]) -> None:
        pairing = pair(read_ranks(traces, "local:1").recordings)
        assert representatives(RANKS, pairing) == list(range(RANKS))
        assert among(pairing, range(RANKS)) == pairing

    def test_are_the_late_rank_and_others_evenly_spread(self, traces: list[TraceFile]) -> None:
        recordings = read_ranks(traces, "local:1").recordings
        assert representatives(RANKS, pair(recordings), most=4) == [0, 2, 4, 5]

    def test_make_the_step_cost_what_it_costs_of_all_ranks(
        self, traces: list[TraceFile], here: bytes, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(
            build, "representatives", lambda count, pairing: representatives(count, pairing, 3)
        )
        some = msgspec.json.decode(audited(read_ranks(traces, "local:1").recordings), type=Audit)
        every = msgspec.json.decode(here, type=Audit)
        assert some.verdict.label == every.verdict.label
        assert some.verdict.overlap_backward == every.verdict.overlap_backward
        assert some.verdict.cost_share == pytest.approx(every.verdict.cost_share, rel=0.01)
        assert some.verdict.step_ms == pytest.approx(every.verdict.step_ms, rel=0.01)
        assert some.stragglers == every.stragglers
        priced = [rank.rank for rank in some.ranks if any(step.cost_ms is not None for step in rank.steps)]
        assert priced == [0, 4, 5]
        for few, all_of_them in zip(some.ranks, every.ranks, strict=True):
            assert few.totals == all_of_them.totals
            assert [step.exposed_ms for step in few.steps] == [step.exposed_ms for step in all_of_them.steps]


class TestTheNumberOfWorkers:
    def test_is_one_where_there_is_little_to_read(self, traces: list[TraceFile]) -> None:
        assert workers_for(traces) == 1

    @pytest.mark.parametrize(
        ("cores", "free", "workers"),
        [(64, None, 16), (4, None, 4), (64, 1 << 30, 2), (64, 1 << 20, 1)],
    )
    def test_is_bounded_by_files_cores_and_memory(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cores: int, free: int | None, workers: int
    ) -> None:
        files: list[TraceFile] = []
        for rank in range(16):
            files.append(tmp_path / f"rank{rank}.json")
            with (tmp_path / f"rank{rank}.json").open("wb") as file:
                file.truncate(250 << 20)
        monkeypatch.setattr(choose, "cores", lambda: cores)
        monkeypatch.setattr(choose, "free_bytes", lambda: free)
        assert workers_for(files) == workers

    def test_is_none_for_files_that_only_this_process_sees(self) -> None:
        with executor("local:4", [RemoteFile("memory://one"), RemoteFile("memory://two")]) as chosen:
            assert isinstance(chosen, Here)


class TestAnEngine:
    @pytest.mark.parametrize("name", ["", "ray", "local:", "local:0", "local:-1", "local:two", "locally"])
    def test_that_there_is_not_is_refused(self, name: str, traces: list[TraceFile]) -> None:
        with pytest.raises(
            InputError, match=r"no engine .*; there are local, local:N .* and dask://host:port"
        ):
            read_ranks(traces, name)

    @pytest.mark.parametrize(
        "name",
        ["dask://", "dask://host", "dask://:1", "dask://h:x", "dask://a/b:1", "dask://h:0", "dask://h:70000"],
    )
    def test_without_an_address_is_refused(self, name: str, traces: list[TraceFile]) -> None:
        with pytest.raises(InputError, match=r"no address in .*; name a scheduler as dask://host:port"):
            read_ranks(traces, name)

    @pytest.mark.parametrize(
        "name", ["tcp://10.0.0.1:8786", "dask://tcp://10.0.0.1:8786", "tls://10.0.0.1:8786"]
    )
    def test_by_a_schedulers_own_account_of_its_address_is_put_right(
        self, name: str, traces: list[TraceFile]
    ) -> None:
        with pytest.raises(InputError, match=r"; did you mean dask://10\.0\.0\.1:8786\?$"):
            read_ranks(traces, name)

    def test_that_does_not_answer_is_said_in_one_line(self) -> None:
        with pytest.raises(InputError, match=r"no dask scheduler answers at 127\.0\.0\.1:9 within 0\.5 s"):
            Cluster("127.0.0.1:9", timeout_s=0.5)

    def test_that_listens_and_says_nothing_is_no_scheduler(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as mute:
            address = f"127.0.0.1:{mute.getsockname()[1]}"
            with pytest.raises(InputError, match=rf"no dask scheduler answers at {address} within 0\.5 s"):
                Cluster(address, timeout_s=0.5)

    def test_without_its_package_says_which_extra_to_install(
        self, traces: list[TraceFile], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setitem(sys.modules, "distributed", None)
        with pytest.raises(InputError, match=r"needs stepscope\[dask\], which is not installed"):
            read_ranks(traces, "dask://127.0.0.1:9")

    def test_whose_workers_run_another_version_is_refused(self) -> None:
        with pytest.raises(
            InputError, match=r"the workers run stepscope 0\.0\.0 and this is .*; install one version"
        ):
            outcome(("0.0.0", b"", ""))
