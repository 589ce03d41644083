"""What a rank leaves behind is found and ended."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="processes are found in /proc")

LAUNCHER = """
import os, subprocess, time
from stepscope.capture.orphans import _below, adopt_orphans, end_below
adopt_orphans()
subprocess.run(["sh", "-c", {rank!r}])
before = len(_below(os.getpid()))
end_below(os.getpid(), grace_seconds=0.5)
print(before, _below(os.getpid()))
"""


@pytest.mark.parametrize(
    "rank",
    ["setsid sleep 1000 & exit 0", "setsid sh -c 'trap \"\" TERM; sleep 1000; sleep 1000' & exit 0"],
    ids=["ends when asked", "does not"],
)
def test_a_background_process_of_a_rank_that_is_gone_is_ended(rank: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", LAUNCHER.format(rank=rank)], capture_output=True, text=True, check=True
    )
    before, after = done.stdout.split(maxsplit=1)
    assert int(before) >= 1
    assert after == "[]\n"
