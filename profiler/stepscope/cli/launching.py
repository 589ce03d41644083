"""What the commands share that launch a training script under torchrun."""

from __future__ import annotations

import argparse
import sys

from stepscope.capture.target import CPU_PROCESSES
from stepscope.errors import InputError

ONE_NODE = ("1", "1:1")


def refuse_no_python(args: argparse.Namespace) -> None:
    """Raise InputError for torchrun's --no-python."""
    if args.no_python:
        raise InputError(
            "--no-python starts something that is not Python, and only Python scripts can be recorded"
        )


def settle_processes(args: argparse.Namespace, gpus: int) -> int | None:
    """Settle the number of processes a node; None where torchrun has to find it out (auto, gpu, ...)."""
    if args.nproc_per_node is None:
        args.nproc_per_node = str(gpus or CPU_PROCESSES)
        kind = "one for each GPU" if gpus else "on the CPU, as there is no GPU"
        say(f"{args.nproc_per_node} processes ({kind}); --nproc-per-node sets another number")
    return processes_of(args)


def processes_of(args: argparse.Namespace) -> int | None:
    """The number of processes a node; None where torchrun has to find it out. InputError for less than one of each."""
    try:
        processes = int(args.nproc_per_node)
    except ValueError:
        processes = None
    if processes is not None and processes < 1:
        raise InputError(
            f"--nproc-per-node {args.nproc_per_node} starts no process; give 1 or more, or leave it out"
        )
    least, _, most = args.nnodes.partition(":")
    most = most if ":" in args.nnodes else least
    if not least.isdecimal() or not most.isdecimal() or not 0 < int(least) <= int(most):
        raise InputError(
            f"--nnodes {args.nnodes} is no number of nodes; give 1 or more, or a range such as 1:4"
        )
    return processes


def at_least_one(text: str) -> int:
    """A number of steps, rounds or seconds as an option's value."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number from 1 on")
    return int(text)


def say(line: str) -> None:
    """On standard error: standard output is the script's own."""
    print(f"stepscope: {line}", file=sys.stderr, flush=True)
