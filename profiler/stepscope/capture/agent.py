"""The process that is torchrun: launches the ranks of this node, and tells the launcher how that went in a small file.

Run as `python -P -m stepscope.capture.agent JOB STATUS LAUNCHER`: JOB holds torchrun's parsed arguments, STATUS gets a
LaunchStatus, LAUNCHER is the process that this one ends with.
"""

from __future__ import annotations

# ruff: noqa: E402  # torch takes seconds to import, in which the launcher may be killed
import sys

from stepscope.capture.orphans import die_with_launcher

die_with_launcher(int(sys.argv[3]))

import argparse
import logging
import os
import signal
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import NoReturn

import msgspec
import torch.distributed.run
from torch.distributed.elastic.multiprocessing import api as elastic
from torch.distributed.elastic.multiprocessing.api import SignalException
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
from torch.distributed.elastic.rendezvous import RendezvousError

from stepscope.capture.launch import CPP_LOG_LEVEL, FORWARDED, LaunchStatus, RankFailure
from stepscope.capture.orphans import adopt_orphans, end_below


def main(job: Path, status: Path) -> int:
    """Run torchrun in this process; 0 when all ranks ended well."""
    adopt_orphans()
    _restore_log_level()
    logging.disable(logging.CRITICAL)  # what went wrong, the launcher says in one line
    elastic._terminate_process_handler = _end_once  # what it installs; there is no public way
    outcome = _launch(argparse.Namespace(**msgspec.json.decode(job.read_bytes())))
    if outcome.kind != "done":
        end_below(os.getpid())  # what a rank started in the background and could not end itself
    with suppress(OSError):  # without room for it the exit code says the most important
        status.write_bytes(msgspec.json.encode(outcome))
    return 0 if outcome.kind == "done" else 1


def _end_once(signum: int, frame: FrameType | None) -> NoReturn:
    """torchrun's handler, but for the first signal only: a second one would cut short its waiting for ranks that save."""
    for handled in FORWARDED:
        signal.signal(handled, signal.SIG_IGN)
    raise SignalException(f"got signal {signum}", sigval=signal.Signals(signum))


def _launch(arguments: argparse.Namespace) -> LaunchStatus:
    try:
        torch.distributed.run.run(arguments)
    except ChildFailedError as error:
        failures = sorted(error.failures.items(), key=lambda item: item[1].timestamp)
        return LaunchStatus(
            kind="failed", failures=[RankFailure(rank, failure.exitcode) for rank, failure in failures]
        )
    except SignalException as error:
        return LaunchStatus(kind="signal", message=error.sigval.name)
    except (RendezvousError, OSError, RuntimeError, ValueError, AssertionError) as error:
        # What torchrun raises for an address in use, a rendezvous that fails, a flag that makes no sense.
        return LaunchStatus(kind="error", message=f"{type(error).__name__}: {error}".removesuffix(": "))
    return LaunchStatus(kind="done")


def _restore_log_level() -> None:
    """The launcher silenced torch's C++ log for this process alone; the ranks get what the user set."""
    before = os.environ.pop(CPP_LOG_LEVEL.saved, "")
    os.environ.pop(CPP_LOG_LEVEL.name, None)
    if before:
        os.environ[CPP_LOG_LEVEL.name] = before


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), Path(sys.argv[2])))
