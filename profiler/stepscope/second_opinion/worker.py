"""The inside of a process in which a peer runs: answers one file after the other, and says why where it can't."""

from __future__ import annotations

import json
import math
import resource
import sys
from collections.abc import Callable, Sequence

LONGEST_ERROR = 160


def answer_each(arguments: Sequence[str], ask: Callable[[str], dict[str, float]]) -> None:
    """Write one JSON line a file to standard output: its answer, or the peer's error.

    arguments: the most memory to take, in bytes, then the files.
    """
    limit, *files = arguments
    resource.setrlimit(resource.RLIMIT_AS, (int(limit), int(limit)))
    out, sys.stdout = sys.stdout, sys.stderr  # what the peer prints is no answer
    for file in files:
        line: dict[str, object] = {"source": file}
        try:
            answer = ask(file)
            line["answer"] = {name: value for name, value in answer.items() if math.isfinite(value)}
        except Exception as error:  # noqa: BLE001 - whatever a peer raises is what is reported of it
            line["error"] = f"{type(error).__name__}: {' '.join(str(error).split())}"[:LONGEST_ERROR]
        out.write(json.dumps(line) + "\n")
        out.flush()
