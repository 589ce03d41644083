"""Budget a step's communication by arithmetic, before anything runs.

A flat ring all-reduce over --gpus ranks with --bw and --latency, against --step-ms of
compute: does it fit behind backward, which bucket sizes make sense, what helps, and what
happens on more ranks. It is a model: `stepscope run` measures. Gradients are one message,
or the recorded buckets with --run.

--fabric takes alpha and bandwidth from what `stepscope calibrate` measured here; --run takes
message, ranks, compute, backward and buckets from a recorded run, and holds the model against
it, bucket by bucket. An option that is given overrides either, and the inputs say so. A
calibration on another number of ranks is taken with a caution, one of another machine is not.

GB is 1e9 bytes (divide a link's Gbit/s by 8); MiB is 2**20 bytes, as DDP's bucket_cap_mb.

examples:
  stepscope cost --gpus 8 --bw 300 --latency 5 --params 0.124 --step-ms 60
  stepscope cost --gpus 32 --bw 25 --latency 20 --params 1.3 --step-ms 400 --buckets 1,8,16,25,100
  stepscope cost --run runs/demo --fabric fabric.json
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from typing import TextIO

from stepscope.budget.encode import to_json
from stepscope.budget.plan import make_budget, measured_alone
from stepscope.budget.result import Budget, Unmodelled
from stepscope.budget.setting import STAGES
from stepscope.cli.arguments import add_output_options, share
from stepscope.cli.cost_setting import Sources, remarks, setting_of, warning
from stepscope.cli.output import STANDARD_OUTPUT, announce, refuse_existing, write_file
from stepscope.cli.plain_reports import find_report

SMALLEST, LARGEST = 1e-6, 1e9
"""Numbers outside of this are slips of the keyboard, and would only overflow further on."""

MOST_RANKS = 10_000_000

GROUP = "stepscope.cost_reports"


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options of `stepscope cost`."""
    needed = parser.add_argument_group("needed, unless a file below has it")
    _add(needed, "--gpus", count, "N", "ranks in the data-parallel group")
    _add(needed, "--bw", number, "GB/s", "bandwidth of a rank's link, each way")
    _add(needed, "--latency", number, "US", "latency a hop, in microseconds")
    _add(needed, "--params", number, "BILLIONS", "parameters of the model")
    _add(needed, "--step-ms", number, "MS", "forward and backward of a micro-batch alone")
    measured = parser.add_argument_group("measured")
    _add(measured, "--fabric", str, "FILE", "fabric.json of `stepscope calibrate`: for --bw and --latency")
    _add(measured, "--run", str, "DIR", "a recorded run: for the other inputs, and to compare with")
    job = parser.add_argument_group("the job")
    _add(job, "--buckets", sizes, "MIB,...", "bucket sizes to tabulate (default 1,8,16,25,100)")
    _add(job, "--bytes-per-param", number, "BYTES", "of a gradient on the wire (default 2)")
    _add(job, "--backward-share", share, "SHARE", "backward's share of the step (default 2/3)")
    _add(job, "--accumulate", count, "N", "micro-batches an optimizer step (default 1)")
    _add(job, "--zero", stage, "STAGE", "ZeRO stage, 0 to 3 (default 0: plain data parallelism)")
    node = parser.add_argument_group("nodes")
    _add(node, "--gpus-per-node", count, "N", "ranks that share a node (default 8)")
    _add(node, "--intra-bw", number, "GB/s", "bandwidth inside a node (default 300)")
    _add(node, "--intra-latency", number, "US", "latency a hop inside a node (default 5)")
    scale = parser.add_argument_group("scaling")
    _add(scale, "--scale-to", counts, "N,...", "numbers of ranks to compare with")
    _add(scale, "--batch", number, "SAMPLES", "batch of a rank and micro-batch")
    _add(scale, "--critical-batch", number, "SAMPLES", "global batch beyond which more ranks stop paying")
    add_output_options(parser)


def _add(
    group: argparse._ArgumentGroup,
    option: str,
    kind: Callable[[str], object],
    metavar: str,
    text: str,
) -> None:
    group.add_argument(option, type=kind, metavar=metavar, help=text)


def execute(args: argparse.Namespace) -> int:
    """Make the budget, print it, and write it where --json says."""
    render = find_report(GROUP, "terminal")
    refuse_existing((args.json,), force=args.force)
    budget = _budget(args, read_sources(args))
    to_stdout = args.json == STANDARD_OUTPUT
    if not to_stdout:
        render(budget, sys.stdout)
    if args.json is not None:
        write_file(args.json, lambda stream: _write_json(budget, stream))
        announce([args.json], stdout_holds_data=to_stdout)
    return 0


def read_sources(args: argparse.Namespace) -> Sources:
    """What --run and --fabric name. A calibration has to be of this machine, or of that on which the run was recorded."""
    recorded = calibration = None
    if args.run is not None:
        from stepscope.cli.recorded import read_recorded

        recorded = read_recorded(args.run)
    if args.fabric is not None:
        from stepscope.budget.measured import read_fabric

        calibration = read_fabric(
            args.fabric, host=recorded.hosts[0] if recorded and recorded.hosts else None
        )
    return Sources(calibration, args.fabric or "", recorded)


def _budget(args: argparse.Namespace, sources: Sources) -> Budget | Unmodelled:
    """The budget, with the recorded run beside it; without a link, what was recorded alone."""
    recorded = sources.recorded
    if recorded is None:
        setting = setting_of(args, sources)
        return make_budget(
            setting, remarks=remarks(args, sources, setting.ranks), warning=warning(args, sources)
        )
    from stepscope.budget.beside import compare

    model = sources.model(args, recorded.ranks)
    said = [*remarks(args, sources, args.gpus or recorded.ranks)]
    given = args.bw is not None or args.latency is not None
    if (model is None and not given) or (model is not None and not model.base.alpha.base):
        return measured_alone(recorded, model, said, warning(args, sources))
    setting = setting_of(args, sources)
    return make_budget(
        setting, remarks=said, comparison=compare(recorded, model), warning=warning(args, sources)
    )


def _write_json(budget: Budget | Unmodelled, stream: TextIO) -> None:
    stream.write(to_json(budget))


def number(text: str) -> float:
    """A number above 0 as an option's value."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not SMALLEST <= value <= LARGEST:
        raise argparse.ArgumentTypeError(f"{text!r} is no number above 0 (from {SMALLEST:g} to {LARGEST:g})")
    return value


def count(text: str) -> int:
    """A whole number from 1 as an option's value."""
    if not (text.isascii() and text.isdecimal()) or not 1 <= int(text) <= MOST_RANKS:
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number from 1 to {MOST_RANKS:,}")
    return int(text)


def counts(text: str) -> tuple[int, ...]:
    """Whole numbers from 1, separated by commas."""
    return tuple(count(part.strip()) for part in text.split(","))


def sizes(text: str) -> tuple[float, ...]:
    """Numbers above 0, separated by commas."""
    return tuple(number(part.strip()) for part in text.split(","))


def stage(text: str) -> int:
    """A ZeRO stage."""
    if text not in map(str, STAGES):
        raise argparse.ArgumentTypeError(f"{text!r} is no ZeRO stage; there are 0, 1, 2 and 3")
    return int(text)
