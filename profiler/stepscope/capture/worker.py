"""What torchrun starts in place of the user's script.

It is started by its path and takes its own folder off the search path at once, so that the user's folder, not ours and not the
current one, is what imports find first: a profiler.py beside the script stays theirs.
"""

from __future__ import annotations

import sys

if not sys.flags.safe_path:
    del sys.path[0]

from stepscope.capture.orphans import die_with_agent
from stepscope.capture.place import enter_own

die_with_agent()
enter_own()

from stepscope.capture.rank import main  # noqa: E402  # nothing may open a socket before the move

main()
