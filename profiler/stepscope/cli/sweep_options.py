"""The options of `stepscope sweep`: torchrun's, the knobs with their values, and what a candidate changes of a launch."""

from __future__ import annotations

import argparse
import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple, NoReturn

from stepscope.capture.fabric import add_option
from stepscope.capture.torchrun import torchrun_parser
from stepscope.cli.arguments import Parser, add_output_options, suggesting
from stepscope.cli.launching import at_least_one, refuse_no_python
from stepscope.errors import InputError
from stepscope.sweep.build import ACCUMULATE
from stepscope.sweep.plan import AS_IN_SCRIPT, BUCKET_CAP

ZERO = "zero"
FLAGS = {ACCUMULATE: "--accumulate", ZERO: "--zero"}
"""Where a knob goes that only the script can turn, unless --flag-for names another flag of it."""

WARMUP, STEPS, REPEAT = 8, 3, 3
"""With the three that are timed after the recording these make eight timed steps a run, in fifteen of the script's own."""

MOST_RUNS = 1000
LARGEST_CAP_MB = 1 << 20
OWN_OPTIONS = (
    *("bucket_cap_mb", "accumulate", "zero", "env", "arg", "flag_for", "repeat", "halving", "seed"),
    *("run_timeout", "calibration", "out", "warmup", "steps", "fabric", "json", "force"),
)
_VARIABLE = re.compile(r"[A-Za-z_]\w*")


class Change(NamedTuple):
    """What a candidate changes of a launch. bucket_cap_mb: to be set in DDP; None leaves the script's own."""

    bucket_cap_mb: float | None
    arguments: list[str]
    environment: dict[str, str]


def parse(argv: Sequence[str], description: str) -> argparse.Namespace:
    """torchrun's arguments and ours in one namespace, the knobs of all options in `knobs`: name to values.

    description: the command's own, for --help. Raises InputError for what no sweep can be made of.
    """
    words = [*_joined(argv)]
    parser = torchrun_parser()
    parser.prog = "stepscope sweep"
    parser.error = lambda message: _refuse(suggesting(parser, message))  # type: ignore[method-assign]
    parser.print_help = lambda file=None: print_help(description)  # type: ignore[method-assign]
    add_options(parser)
    args = parser.parse_args(["=".join(word) for word in words])
    own = len(args.training_script_args)
    args.training_script_args = [part for word in words[len(words) - own :] for part in word] if own else []
    refuse_no_python(args)
    args.knobs = _knobs(args)
    args.flags = _flags(args)
    return args


def _joined(argv: Sequence[str]) -> list[list[str]]:
    """The words, `--arg --dtype=a,b` as one that argparse takes: a value that looks like an option must be joined to its own."""
    words: list[list[str]] = []
    for word in argv:
        if words and words[-1] == ["--arg"] and word.startswith("-"):
            words[-1].append(word)
        else:
            words.append([word])
    return words


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add our options to torchrun's, or to a parser that prints them."""
    knobs = parser.add_argument_group("knobs: each with its values, every combination is a candidate")
    knobs.add_argument(
        "--bucket-cap-mb",
        type=_caps,
        metavar="MIB,...",
        help=f"DDP's bucket cap, set whatever the script asks for; `{AS_IN_SCRIPT}` leaves its own",
    )
    knobs.add_argument(
        "--accumulate",
        type=_counts,
        metavar="N,...",
        help="micro-batches a step, by the script's flag --accumulate; compared by micro-batch",
    )
    knobs.add_argument("--zero", type=_stages, metavar="STAGE,...", help="by the script's flag --zero")
    knobs.add_argument(
        "--env", action="append", default=[], metavar="NAME=VALUE,...", help="a variable of the environment"
    )
    knobs.add_argument(
        "--arg",
        action="append",
        default=[],
        metavar="WORD=VALUE,...",
        help="an argument of the script, put after its own as WORD=VALUE: --arg '--dtype=float32,bfloat16'",
    )
    knobs.add_argument(
        "--flag-for",
        action="append",
        default=[],
        metavar="KNOB=FLAG",
        help="the script's flag for bucket-cap-mb, accumulate or zero: it gets FLAG=VALUE; "
        "--flag-for accumulate=--gradient-accumulation-steps",
    )
    runs = parser.add_argument_group("runs")
    runs.add_argument(
        "--repeat",
        type=at_least_one,
        default=REPEAT,
        metavar="N",
        help=f"rounds of all candidates (default: {REPEAT})",
    )
    runs.add_argument(
        "--halving",
        action="store_true",
        help="successive halving: all once, then the better half twice as often, until two are left for --repeat rounds",
    )
    _add_run_options(runs)
    add_option(parser)
    add_output_options(parser)


def _add_run_options(runs: argparse._ArgumentGroup) -> None:
    runs.add_argument(
        "--seed", type=int, default=0, metavar="N", help="of the random order in a round (default: 0)"
    )
    runs.add_argument(
        "--warmup",
        type=at_least_one,
        default=WARMUP,
        metavar="N",
        help=f"steps before the recorded ones; from the third to the last but one they are timed (default: {WARMUP})",
    )
    runs.add_argument(
        "--steps", type=at_least_one, default=STEPS, metavar="N", help=f"steps to record (default: {STEPS})"
    )
    runs.add_argument(
        "--run-timeout",
        type=at_least_one,
        metavar="SECONDS",
        help="end a run that takes longer, and count its candidate as failed (default: never)",
    )
    runs.add_argument(
        "--calibration",
        metavar="FILE",
        help="fabric.json of `stepscope calibrate`, for the model's columns (default: a fit of the sweep's own transfers)",
    )
    runs.add_argument(
        "--out",
        metavar="DIR",
        help="the sweep's directory (default: stepscope-sweep-<UTC time>); named again with the same flags, a stopped "
        "sweep goes on",
    )


def change(knobs: Mapping[str, str], flags: Mapping[str, str], variables: Sequence[str]) -> Change:
    """What a candidate changes; variables: which of its knobs are of the environment."""
    cap = knobs.get(BUCKET_CAP, AS_IN_SCRIPT)
    arguments = [
        f"{flags.get(name, name)}={value}"
        for name, value in knobs.items()
        if name not in variables and value != AS_IN_SCRIPT and (name != BUCKET_CAP or name in flags)
    ]
    patched = cap != AS_IN_SCRIPT and BUCKET_CAP not in flags
    environment = {name: knobs[name] for name in variables}
    return Change(float(cap) if patched else None, arguments, environment)


def variables_of(args: argparse.Namespace) -> list[str]:
    """The knobs that are variables of the environment."""
    return [text.partition("=")[0] for text in args.env]


def print_help(description: str) -> None:
    """Our options under the command's own description; torchrun's are in its own help."""
    options = Parser(prog="stepscope sweep", usage=argparse.SUPPRESS, add_help=False)
    add_options(options)
    print(description.strip(), options.format_help().strip(), sep="\n\n")


def _knobs(args: argparse.Namespace) -> dict[str, list[str]]:
    pairs = [
        *((name, values) for name in (BUCKET_CAP, ACCUMULATE, ZERO) if (values := _value(args, name))),
        *(_pair("--env", text) for text in args.env),
        *(_pair("--arg", text) for text in args.arg),
    ]
    if not pairs:
        raise InputError(
            "nothing to compare; give a knob with its values, such as --bucket-cap-mb 1,8,25,100"
        )
    knobs: dict[str, list[str]] = {}
    for name, values in pairs:
        if name in knobs:
            raise InputError(f"{name} is given twice; list all of its values in one option")
        repeated = next((value for value in values if values.count(value) > 1), None)
        if repeated is not None:
            raise InputError(f"{name} has the value {repeated} twice; give each value once")
        knobs[name] = list(values)
    bad = next((name for name in variables_of(args) if not _VARIABLE.fullmatch(name)), None)
    if bad is not None:
        raise InputError(f"--env {bad!r} is no name of a variable; write --env NAME=VALUE,VALUE")
    count = 1
    for values in knobs.values():
        count *= len(values)
    if count < 2:
        raise InputError("one candidate has nothing to be compared with; give a knob two values or more")
    if count * args.repeat > MOST_RUNS:
        raise InputError(
            f"{count} candidates, {args.repeat} times each, are more than {MOST_RUNS} runs; give fewer"
        )
    if args.halving and args.repeat < 2:
        raise InputError("--halving with one round has no later rounds to save; pass --repeat 2 or more")
    return knobs


def _value(args: argparse.Namespace, name: str) -> list[str] | None:
    values: list[str] | None = getattr(args, name.replace("-", "_"))
    return values


def _pair(option: str, text: str) -> tuple[str, list[str]]:
    name, equals, values = text.partition("=")
    if not (name and equals):
        raise InputError(f"{option} {text!r} has no values; write {option} NAME=VALUE,VALUE")
    return name, values.split(",")


def _flags(args: argparse.Namespace) -> dict[str, str]:
    flags = dict(FLAGS)
    for text in args.flag_for:
        name, equals, flag = text.partition("=")
        if name not in (BUCKET_CAP, ACCUMULATE, ZERO) or not (equals and flag):
            raise InputError(
                f"--flag-for {text!r} is none; write KNOB=FLAG with {BUCKET_CAP}, {ACCUMULATE} or {ZERO} as the knob"
            )
        flags[name] = flag
    return {name: flag for name, flag in flags.items() if name in args.knobs}


def _caps(text: str) -> list[str]:
    return [part if part == AS_IN_SCRIPT else _cap(part) for part in text.split(",")]


def _cap(text: str) -> str:
    """A number of MiB, written in one way, so that 25 and 25.0 are the same candidate."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 1e-6 <= value <= LARGEST_CAP_MB:
        raise argparse.ArgumentTypeError(
            f"{text!r} is no bucket cap; give MiB above 0, or `{AS_IN_SCRIPT}` for the script's own"
        )
    return f"{value:g}"


def _counts(text: str) -> list[str]:
    parts = text.split(",")
    bad = next((part for part in parts if not part.isdecimal() or int(part) < 1), None)
    if bad is not None:
        raise argparse.ArgumentTypeError(f"{bad!r} is no number of micro-batches; give whole numbers from 1")
    return [str(int(part)) for part in parts]


def _stages(text: str) -> list[str]:
    parts = text.split(",")
    bad = next((part for part in parts if part not in ("0", "1", "2", "3")), None)
    if bad is not None:
        raise argparse.ArgumentTypeError(f"{bad!r} is no ZeRO stage; there are 0, 1, 2 and 3")
    return parts


def _refuse(message: str) -> NoReturn:
    if "training_script" in message:
        message = "nothing to compare on: name a SCRIPT, -m MODULE or a WORKLOAD"
    raise InputError(f"{message} (see `stepscope sweep --help`)")
