"""A dask cluster that reads traces: many machines, for traces on storage that all of them see."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import suppress
from importlib import import_module
from threading import Thread
from typing import Any

from stepscope.errors import InputError
from stepscope.executors.work import answer, outcome
from stepscope.trace.files import TraceFile
from stepscope.trace.recording import Recording

_TIMEOUT_S = 10
"""For the scheduler to answer."""
_GRACE_S = 2
"""For dask to say so itself."""


class Cluster:
    """Reads on the workers of a dask scheduler at `host:port`. InputError where there is none, or it has no workers."""

    def __init__(self, address: str, timeout_s: float = _TIMEOUT_S) -> None:
        self._name = f"dask://{address}"
        try:
            self._dask = import_module("distributed")
        except ImportError as error:
            raise InputError(
                f"--engine {self._name} needs stepscope[dask], which is not installed: pip install 'stepscope[dask]', "
                "or leave --engine out"
            ) from error
        logging.getLogger("distributed").setLevel(
            logging.CRITICAL
        )  # it would tell a refused connection at length
        self._client = self._connected(address, timeout_s)
        if not self._client.scheduler_info()["workers"]:
            self.close()
            raise InputError(
                f"the dask scheduler at {address} has no workers; start some with `dask worker {address}`"
            )

    def _connected(self, address: str, timeout_s: float) -> Any:
        """A client; in a thread, since dask waits without end for a handshake from what is no scheduler."""
        found: list[Any] = []

        def connect() -> None:
            with suppress(OSError, ValueError):
                found.append(self._dask.Client(f"tcp://{address}", timeout=timeout_s, set_as_default=False))

        connecting = Thread(target=connect, name="stepscope-dask", daemon=True)
        connecting.start()
        connecting.join(timeout_s + _GRACE_S)
        if not found:
            raise InputError(
                f"no dask scheduler answers at {address} within {timeout_s:g} s; start one with `dask scheduler`, or leave "
                "--engine out"
            )
        return found[0]

    def recordings(self, files: Sequence[TraceFile], *, whole: bool) -> Iterator[Recording | InputError]:
        """See `Executor`. The workers read the files themselves, by the same paths."""
        names = [str(file if "://" in str(file) else file.resolve()) for file in files]
        futures = self._client.map(answer, names, whole=whole, pure=False)
        for future in futures:
            yield outcome(self._result(future))
            future.release()

    def _result(self, future: Any) -> tuple[str, bytes | None, str]:
        lost = (self._dask.KilledWorker, self._dask.CancelledError, OSError)
        try:
            found: tuple[str, bytes | None, str] = future.result()
        except ImportError as error:
            raise InputError(
                f"the workers of {self._name} have no stepscope; install the same version there"
            ) from error
        except lost as error:
            raise InputError(
                f"{self._name} was lost, or its workers were killed; is there memory enough?"
            ) from error
        return found

    def close(self) -> None:
        """Leave the cluster, which goes on without us."""
        with suppress(OSError):
            self._client.close(timeout=2)
