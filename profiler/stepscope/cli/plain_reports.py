"""Reports of results other than an audit: found by entry point, and written beside their JSON."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TextIO

from stepscope.cli.output import STANDARD_OUTPUT, announce, write_file
from stepscope.errors import InputError
from stepscope.plugins import installed, load

if TYPE_CHECKING:
    import msgspec

Render = Callable[[Any, TextIO], None]


def find_report(group: str, name: str) -> Render:
    """The report of that name in an entry-point group; raises InputError for any other."""
    found = installed(group)
    if name not in found:
        raise InputError(f"no report {name!r}; there are {', '.join(sorted(found))}")
    return load(found[name])


def deliver(
    made: msgspec.Struct, render: Render, *, output: str | None, json: str | None, data: bool = False
) -> None:
    """Write the result as JSON to `json` and the report to `output` or standard output, then say what was written.

    `--json -` takes standard output for itself. data: the report is for a program to read.
    """
    if json is not None:
        write_file(json, lambda stream: write_json(made, stream))
    if output is not None:
        write_file(output, lambda stream: render(made, stream))
    elif json != STANDARD_OUTPUT:
        render(made, sys.stdout)
    holds_data = json == STANDARD_OUTPUT or (data and output in (None, STANDARD_OUTPUT))
    announce([file for file in (output, json) if file is not None], stdout_holds_data=holds_data)


def write_json(made: msgspec.Struct, stream: TextIO) -> None:
    """Any result as indented JSON with a newline at the end."""
    import msgspec  # `stepscope cost` writes its own JSON, and needs none of it

    text = msgspec.json.format(msgspec.json.encode(made), indent=2)
    stream.write(text.decode("utf-8", "backslashreplace") + "\n")
