"""Predict what other bucket sizes, links or numbers of ranks would make of a recorded run.

From one recorded run of DDP (a run directory, or its traces): its gradients are put into
buckets by DDP's own rule, sent over the link as it was measured, and the step is replayed.
A table of bucket caps, the best schedule that there could be, and a recommendation.

--bw and --latency describe another link, --fabric takes one that `stepscope calibrate`
measured; --world-size, --accumulate and --zero ask for another job. What an answer assumes
stands below it. `stepscope sweep` measures what this predicts.

examples:
  stepscope predict runs/demo
  stepscope predict runs/demo --bucket-cap-mb 1,5,25 --world-size 8 --bw 12.5 --latency 20
"""

from __future__ import annotations

import argparse
import sys

from stepscope.cli.arguments import add_output_options
from stepscope.cli.cost import count, number, stage
from stepscope.cli.output import STANDARD_OUTPUT, announce, refuse_existing, write_file
from stepscope.cli.plain_reports import find_report, write_json
from stepscope.cli.progress import progress_bar
from stepscope.names import as_text
from stepscope.predict.result import Predicted

GROUP = "stepscope.predict_reports"
AS_RECORDED = "script"
"""The cap that `stepscope sweep` calls so: the script's own."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options of `stepscope predict`."""
    parser.add_argument(
        "run", metavar="RUN", help="a run directory of `stepscope run`, or traces of a DDP run"
    )
    parser.add_argument(
        "--bucket-cap-mb",
        type=_caps,
        metavar="MIB,...",
        help=f"caps to predict (default 0.5,1,2,5,10,25,50,100); `{AS_RECORDED}`, as in sweep, is the recorded one, which is "
        "always there as `now`",
    )
    parser.add_argument("--world-size", type=count, metavar="N", help="another number of ranks")
    parser.add_argument(
        "--bw", type=number, metavar="GB/s", help="another bandwidth of a rank's link, each way"
    )
    parser.add_argument("--latency", type=number, metavar="US", help="another latency a hop, in microseconds")
    parser.add_argument(
        "--fabric", metavar="FILE", help="a link as `stepscope calibrate` measured it (fabric.json)"
    )
    parser.add_argument("--accumulate", type=count, metavar="K", help="other micro-batches an optimizer step")
    parser.add_argument(
        "--zero", type=stage, metavar="STAGE", help="ZeRO stage, 0 to 3, instead of plain DDP"
    )
    parser.add_argument(
        "--batch",
        type=number,
        metavar="SAMPLES",
        help="batch of a rank and micro-batch, to tell the global one",
    )
    add_output_options(parser)


def execute(args: argparse.Namespace) -> int:
    """Predict, print the table, and write it where --json says."""
    render = find_report(GROUP, "terminal")
    refuse_existing((args.json,), force=args.force)
    made = _predict(args)
    to_stdout = args.json == STANDARD_OUTPUT
    if not to_stdout:
        render(made, sys.stdout)
    if args.json is not None:
        write_file(args.json, lambda stream: write_json(made, stream))
        announce([args.json], stdout_holds_data=to_stdout)
    return 0


def _caps(text: str) -> tuple[float, ...]:
    """Sizes in MiB; the recorded cap needs none."""
    parts = [part.strip() for part in text.split(",")]
    return tuple(number(part) for part in parts if part != AS_RECORDED)


def _predict(args: argparse.Namespace) -> Predicted:
    from stepscope.audit.cap_rule import CAPS_MIB
    from stepscope.predict.case import read_case
    from stepscope.predict.link import Wanted
    from stepscope.predict.whatif import Question, predict

    question = Question(
        caps_mb=CAPS_MIB if args.bucket_cap_mb is None else args.bucket_cap_mb,
        world_size=args.world_size,
        link=Wanted(args.bw, args.latency, args.fabric),
        accumulate=args.accumulate,
        zero=args.zero,
        batch=args.batch,
    )
    with progress_bar("predicting") as progress:
        return predict(read_case(args.run, progress), as_text(args.run), question)
