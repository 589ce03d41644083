"""What torchrun starts as a rank of a calibration; by its path, as `worker.py`, and for the same reason."""

from __future__ import annotations

import sys

if not sys.flags.safe_path:
    del sys.path[0]

from stepscope.capture.orphans import die_with_agent
from stepscope.capture.place import enter_own

die_with_agent()
enter_own()

from stepscope.capture.calibrate_rank import main  # noqa: E402  # torch, which may open sockets, comes after the move

main()
