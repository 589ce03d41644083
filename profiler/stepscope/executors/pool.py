"""Processes on this machine that read traces, each one file at a time.

Own processes and pipes, as for the reader's helper, and not multiprocessing: that starts the caller's script anew in each.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from queue import SimpleQueue
from signal import Signals

import msgspec

from stepscope.errors import InputError
from stepscope.executors import worker
from stepscope.executors.work import outcome
from stepscope.trace.files import TraceFile
from stepscope.trace.recording import Recording

_AHEAD = 4
"""Answers that may wait for the caller, by worker: they are memory too."""


class Pool:
    """Reads in several processes. They start with the first file."""

    def __init__(self, workers: int) -> None:
        self._workers = workers
        self._idle: SimpleQueue[subprocess.Popen[bytes] | None] = SimpleQueue()
        self._started: list[subprocess.Popen[bytes]] = []
        self._threads = ThreadPoolExecutor(workers, thread_name_prefix="stepscope-pool")
        for _ in range(workers):
            self._idle.put(None)

    def recordings(self, files: Sequence[TraceFile], *, whole: bool) -> Iterator[Recording | InputError]:
        """See `Executor`. A worker that ends before its answer, killed for its memory say, is an error of its file."""
        waiting: list[Future[bytes | InputError]] = []
        for file in files:
            if len(waiting) >= _AHEAD * self._workers:
                yield _recording(waiting.pop(0).result())
            waiting.append(self._threads.submit(self._ask, str(file), whole))
        while waiting:
            yield _recording(waiting.pop(0).result())

    def _ask(self, file: str, whole: bool) -> bytes | InputError:
        process = self._idle.get() or self._start()
        assert process.stdin is not None
        assert process.stdout is not None
        answer = None
        try:
            with suppress(BrokenPipeError):
                worker.send(process.stdin, (file, whole))
                answer = worker.receive(process.stdout)
        finally:
            self._idle.put(process if answer is not None else None)
        return _ended(file, process) if answer is None else answer

    def _start(self) -> subprocess.Popen[bytes]:
        # -P: a queue.py in the user's folder is not ours. A session of its own: an interrupt is the parent's to handle.
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", worker.__name__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        self._started.append(process)
        return process

    def close(self) -> None:
        """End the processes, whatever they are doing."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        for process in self._started:
            process.kill()
        self._threads.shutdown()
        for process in self._started:
            process.communicate()


def _recording(answer: bytes | InputError) -> Recording | InputError:
    if isinstance(answer, InputError):
        return answer
    return outcome(msgspec.msgpack.decode(answer, type=tuple[str, bytes | None, str]))


def _ended(file: str, process: subprocess.Popen[bytes]) -> InputError:
    code = process.wait()
    why = f"was killed by {Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
    return InputError(
        f"{file}: the process that read it {why}; try --engine local:1 (is there memory enough?)"
    )
