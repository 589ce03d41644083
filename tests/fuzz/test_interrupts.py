"""Interrupting a run leaves no process behind, not even one that a rank has put into the background."""

from __future__ import annotations

import signal
import sys
import time
from pathlib import Path

import pytest

from recordings import Started

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="processes are found in /proc"),
]


@pytest.mark.parametrize("signals", [(signal.SIGTERM,), (signal.SIGINT, signal.SIGINT)])
def test_what_a_rank_put_into_the_background_ends_with_the_run(
    tmp_path: Path, signals: tuple[signal.Signals, ...]
) -> None:
    started = Started("--out", tmp_path / "run", "--nproc-per-node", "1", "background.py")
    assert started.process.stdout is not None
    assert started.process.stdout.readline() == "in the background\n"
    for number in signals:
        started.process.send_signal(number)
        time.sleep(0.1)
    finished = started.finish()
    assert finished.code == 128 + signals[0]
    assert finished.leftovers == []
