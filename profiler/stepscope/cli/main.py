"""The `stepscope` command: finds the chosen command's module, imports that one alone, and reports errors in one line."""

from __future__ import annotations

import argparse
import difflib
import importlib
import io
import os
import signal
import sys
import textwrap
from collections.abc import Sequence
from pathlib import Path
from types import FrameType, ModuleType
from typing import NoReturn

from stepscope import __version__
from stepscope.cli.arguments import Parser
from stepscope.errors import InputError, StepscopeError

COMMANDS = ("run", "audit", "open", "cost", "predict", "calibrate", "sweep", "compare", "second-opinion")
"""Each is the module of that name in this folder, a hyphen written as an underscore."""

INTERRUPTED, BROKEN_PIPE = 130, 141
"""What a shell reports for a process that SIGINT or SIGPIPE ended."""

_QUESTION = """\
Does the gradient communication of a distributed training step hide behind
backward compute? How much of it could, and what does the rest cost?"""

_EXAMPLE = """\
examples:
  stepscope run --nproc-per-node 2 gpt     record the bundled workload
  stepscope audit traces/                  audit what torch.profiler has written
"""


def entry_point() -> int:
    """What the installed script and `python -m stepscope` call."""
    _open_closed_streams()
    signal.signal(signal.SIGTERM, _leave)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # a name the terminal can't show is no reason to fail
    return main(sys.argv[1:])


def _leave(number: int, _frame: FrameType | None) -> NoReturn:
    """End by way of whatever cleans up: no half file, no process and no temporary folder is left."""
    raise SystemExit(128 + number)


def _open_closed_streams() -> None:
    """Lead the standard streams that the caller closed nowhere, lest a file of ours or of a process of ours get their numbers."""
    while (number := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(number, True)
    os.close(number)
    for name, number in (("stdout", 1), ("stderr", 2)):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(number, "w", encoding="utf-8", closefd=False))


def main(arguments: Sequence[str]) -> int:
    """Run one command line and return its exit code: 0 done, 1 a gate failed, 2 bad input."""
    try:
        code = _dispatch(list(arguments))
        sys.stdout.flush()
    except StepscopeError as error:
        print("stepscope: error:", " ".join(str(error).split()), file=sys.stderr)
        return error.exit_code
    except BrokenPipeError:
        # The reader of our output has gone; Python's own flush at exit must not complain about it again.
        _drop_output()
        return BROKEN_PIPE
    except OSError as error:
        print("stepscope: error:", error, file=sys.stderr)
        _drop_output()
        return StepscopeError.exit_code
    except KeyboardInterrupt:
        print("stepscope: interrupted", file=sys.stderr)
        return INTERRUPTED
    return code


def _drop_output() -> None:
    """Send what is left of the output nowhere, so that the flush at exit does not fail as well."""
    if (output := sys.__stdout__) is not None and output is sys.stdout:
        os.dup2(os.open(os.devnull, os.O_WRONLY), output.fileno())


def _dispatch(arguments: list[str]) -> int:
    parser = _top_parser()
    if not arguments:
        parser.print_help(sys.stderr)
        return InputError.exit_code
    name = arguments.pop(0)
    if name in COMMANDS:
        return _run_command(
            name, importlib.import_module(f"stepscope.cli.{name.replace('-', '_')}"), arguments
        )
    if name.startswith("-"):
        parser.parse_args([name])  # --help and --version leave here
    close = difflib.get_close_matches(name, COMMANDS, n=1)
    hint = f"did you mean `stepscope {close[0]}`?" if close else f"there are {', '.join(COMMANDS)}"
    raise InputError(f"no command {name!r}; {hint} (see `stepscope --help`)")


def _run_command(name: str, module: ModuleType, arguments: list[str]) -> int:
    """A module either extends another program's parser and takes its arguments raw, or configures ours."""
    if hasattr(module, "execute_raw"):
        return int(module.execute_raw(arguments))
    parser = Parser(prog=f"stepscope {name}", description=module.__doc__)
    module.configure(parser)
    return int(module.execute(parser.parse_args(arguments)))


def _top_parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="stepscope",
        usage="stepscope COMMAND [options]",
        description=f"{_QUESTION}\n\ncommands:\n" + "\n".join(map(_summary, COMMANDS)),
        epilog=f"{_EXAMPLE}\nstepscope COMMAND --help tells the options of a command.",
    )
    parser.add_argument("--version", action="version", version=f"stepscope {__version__}")
    return parser


def _summary(name: str) -> str:
    """The first line of the command's docstring, read and not imported: help must not wait for what it doesn't use."""
    with Path(__file__).with_name(f"{name.replace('-', '_')}.py").open(encoding="utf-8") as source:
        text = source.readline().strip().strip('"').rstrip(".")
    return textwrap.fill(text, 79, initial_indent=f"  {name:<15}", subsequent_indent=" " * 17)
