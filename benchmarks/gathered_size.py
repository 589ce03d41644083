"""How small the columns are that `--gather` moves in place of traces: python -m benchmarks.gathered_size PATH...

A PATH is what `stepscope audit` takes. Prints, for each trace, the file's bytes, those of its text, and those of its columns.
"""

from __future__ import annotations

import sys

from stepscope.trace.chunks import text_bytes
from stepscope.trace.discover import find_traces
from stepscope.trace.files import size_of
from stepscope.trace.packed import pack
from stepscope.trace.reader import read


def main(paths: list[str]) -> None:
    """Print a line for each trace that the paths name, and their sum."""
    print(f"{'events':>9} {'text':>12} {'file':>12} {'columns':>12}  file/columns  text/columns")
    sums = [0, 0, 0, 0]
    for file in find_traces(paths):
        trace = read(file)
        sizes = [len(trace.events), text_bytes(file), size_of(file), len(pack(trace))]
        sums = [one + more for one, more in zip(sums, sizes, strict=True)]
        print(_line(sizes), file.name)
    print(_line(sums), "all")


def _line(sizes: list[int]) -> str:
    events, text, stored, columns = sizes
    return f"{events:>9} {text:>12} {stored:>12} {columns:>12} {stored / columns:>13.1f} {text / columns:>13.1f} "


if __name__ == "__main__":
    main(sys.argv[1:])
