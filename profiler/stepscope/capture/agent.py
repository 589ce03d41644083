"""The process that is torchrun: launches the ranks of this node, and tells the launcher how that went in a small file.

Run as `python -P -m stepscope.capture.agent JOB STATUS`: JOB holds torchrun's parsed arguments, STATUS gets a LaunchStatus.
"""

from __future__ import annotations

import argparse
import logging
import os
import signal
import sys
from pathlib import Path

import msgspec
import torch.distributed.run
from torch.distributed.elastic.multiprocessing.api import SignalException
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
from torch.distributed.elastic.rendezvous import RendezvousError

from stepscope.capture.launch import CPP_LOG_LEVEL, LaunchStatus, RankFailure
from stepscope.capture.orphans import die_with_parent


def main(job: Path, status: Path) -> int:
    """Run torchrun in this process; 0 when all ranks ended well."""
    die_with_parent(signal.SIGTERM)
    _restore_log_level()
    logging.disable(logging.CRITICAL)  # what went wrong, the launcher says in one line
    outcome = _launch(argparse.Namespace(**msgspec.json.decode(job.read_bytes())))
    status.write_bytes(msgspec.json.encode(outcome))
    return 0 if outcome.kind == "done" else 1


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
