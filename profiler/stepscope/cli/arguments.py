"""What the commands' parsers share."""

from __future__ import annotations

import argparse
import difflib
import re
from collections.abc import Iterable, Sequence
from typing import Any, NoReturn

from stepscope.errors import InputError

_UNKNOWN = re.compile(r"unrecognized arguments: (?:.* )?(--[\w-]+)")


class Parser(argparse.ArgumentParser):
    """An argument parser whose errors are ours, in one line, and whose description keeps its lines."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False, **kwargs)

    def error(self, message: str) -> NoReturn:
        """Raise instead of exiting, so that all errors leave through one door."""
        raise InputError(f"{suggesting(self, message)} (see `{self.prog} --help`)")


def suggesting(parser: argparse.ArgumentParser, message: str) -> str:
    """A parser's complaint; of an option that it does not have, with the closest one that it has."""
    unknown = _UNKNOWN.search(message)
    names = [name for name in parser._option_string_actions if name.startswith("--")]
    close = difflib.get_close_matches(unknown[1], names, n=1) if unknown else []
    return f"{message}; did you mean {close[0]}?" if close else message


def options_given(parser: argparse.ArgumentParser, argv: Sequence[str], names: Iterable[str]) -> list[str]:
    """Those of the parser's options, by their names in a namespace, that a command line has, with their defaults' values too."""
    unset = object()
    parsed = parser.parse_args(argv, argparse.Namespace(**dict.fromkeys(names, unset)))
    return [name for name in names if getattr(parsed, name) is not unset]


def share(text: str) -> float:
    """A share of a whole as an option's value: a number above 0 and below 1."""
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 < value < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no share between 0 and 1; write 0.1 for 10 %")
    return value


def add_output_options(parser: argparse.ArgumentParser) -> None:
    """`--json` and `--force`, which every command has."""
    parser.add_argument(
        "--json",
        metavar="FILE|-",
        help="write the result as JSON; - is standard output, and prints nothing else there",
    )
    parser.add_argument("--force", action="store_true", help="replace output files that exist")
