"""`stepscope run --monitor`: its option, what it cannot be combined with, and how such a run ends."""

from __future__ import annotations

import argparse
import signal
from collections.abc import Iterable
from pathlib import Path

from stepscope.capture.config import LEAST_EVERY, MONITOR_FILE
from stepscope.capture.launch import LaunchStatus
from stepscope.capture.outcome import what_failed
from stepscope.cli.gate import GATE_OPTIONS
from stepscope.cli.launching import say
from stepscope.errors import InputError

_OF_A_RECORDING = (
    *("warmup", "steps", "with_stack", "stop", "gather", "keep_traces", "noise_scale", "json"),
    *GATE_OPTIONS,
)
"""Options that say something of the one recording, which a monitor does not make."""


def add_monitor_option(parser: argparse.ArgumentParser) -> None:
    """Add --monitor to `run`."""
    parser.add_argument(
        "--monitor",
        type=_every,
        metavar="N",
        help="record one step of every N, audit it in place and throw it away: a line each, monitor.jsonl, scalars "
        "for TensorBoard and Weights & Biases; the traces are kept where the verdict changes",
    )


def refuse_beside_monitor(given: Iterable[str]) -> None:
    """Raise InputError for the first of the given options, by their names in a namespace, that would have no effect."""
    for name in given:
        if name in _OF_A_RECORDING:
            option = name.replace("_", "-")
            raise InputError(
                f"--{option} does not go with --monitor, which makes no recording; leave one out"
            )


def conclude_monitored(outcome: LaunchStatus, run_dir: Path) -> int:
    """Say how it ended; what was found has been told by rank 0."""
    found = run_dir / MONITOR_FILE
    any_found = found.exists() and found.stat().st_size > 0
    kept = f"what was monitored is in {found}" if any_found else "nothing was monitored"
    if not any(run_dir.iterdir()):
        run_dir.rmdir()
    failed = what_failed(outcome, None, run_dir, kept)
    if failed is not None:
        raise InputError(failed)
    if outcome.kind == "signal":
        say(f"stopped by {outcome.message}; {kept}")
        return 128 + signal.Signals[outcome.message]
    if any_found:
        print(f"Wrote {found}")
    return 0


def _every(text: str) -> int:
    if not text.isdecimal() or int(text) < LEAST_EVERY:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of steps; at least {LEAST_EVERY} are needed")
    return int(text)
