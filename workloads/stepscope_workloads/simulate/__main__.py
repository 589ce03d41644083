"""Write a simulated job's traces and what every figure of them must be.

python -m stepscope_workloads.simulate --ranks 8 --cause straggler:rank=3,ms=20 --out simulated
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from stepscope_workloads.simulate.causes import CAUSES, parse
from stepscope_workloads.simulate.job import MIB, US, Clock, Fabric, Host, Job, uniform
from stepscope_workloads.simulate.outcome import Simulation, write


def arguments(given: list[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="python -m stepscope_workloads.simulate",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--out", type=Path, required=True, help="folder for the traces and truth.json; new or empty"
    )
    job = parser.add_argument_group("the job")
    job.add_argument("--ranks", type=int, default=2)
    job.add_argument("--ranks-per-host", type=int, default=8)
    job.add_argument("--steps", type=int, default=3)
    job.add_argument("--sharding", choices=("ddp", "fsdp"), default="ddp")
    job.add_argument("--bucket-cap-mb", type=float, default=25.0, help="MiB, as DDP's bucket_cap_mb")
    job.add_argument("--seed", type=int, default=0)
    job.add_argument(
        "--jitter", type=float, default=0.02, help="largest relative deviation of a kernel's time"
    )
    job.add_argument("--gap-us", type=float, default=0.0, help="between two activities of a stream")
    job.add_argument(
        "--clock", action="append", default=[], metavar="OFFSET_US[,DRIFT_PPM]", help="one a host"
    )
    job.add_argument("--sync-events", action="store_true", help="record cuda_sync rows")
    job.add_argument("--with-stack", action="store_true", help="record Python frames")
    job.add_argument(
        "--cause",
        action="append",
        default=[],
        metavar="NAME[:SETTING=VALUE,...]",
        help=f"what is wrong with the job; may be repeated: {', '.join(CAUSES)}",
    )
    model = parser.add_argument_group("the model: equal layers")
    model.add_argument("--layers", type=int, default=8)
    model.add_argument("--kernels", type=int, default=2, help="a layer, in forward and again in backward")
    model.add_argument("--forward-us", type=float, default=400.0, help="one kernel of forward")
    model.add_argument("--backward-us", type=float, default=800.0, help="one kernel of backward")
    model.add_argument("--parameters", type=int, default=4_000_000, help="elements of a layer's weight")
    model.add_argument("--head", type=int, default=0, help="parameters of one more layer at the end")
    fabric = parser.add_argument_group("host and fabric")
    fabric.add_argument("--operator-us", type=float, default=3.0, help="dispatching one operator")
    fabric.add_argument("--latency-us", type=float, default=5.0, help="alpha: one hop of the ring")
    fabric.add_argument(
        "--gb-per-s", type=float, default=40.0, help="B: the slowest link, 1e9 bytes a second"
    )
    fabric.add_argument("--transfer-us", type=float, help="every transfer takes this long, instead of a ring")
    return parser.parse_args(given)


def job_of(args: argparse.Namespace) -> Job:
    """The job that the command line describes; ValueError says what is wrong with it."""
    return Job(
        model=uniform(
            args.layers,
            round(args.forward_us * US),
            args.parameters,
            args.kernels,
            round(args.backward_us * US),
            args.head,
        ),
        ranks=args.ranks,
        steps=args.steps,
        host=Host(operator=round(args.operator_us * US)),
        fabric=Fabric(
            alpha=round(args.latency_us * US),
            gb_per_s=args.gb_per_s,
            fixed=None if args.transfer_us is None else round(args.transfer_us * US),
        ),
        bucket_cap=round(args.bucket_cap_mb * MIB),
        sharding=args.sharding,
        ranks_per_host=args.ranks_per_host,
        clocks=tuple(_clock(text) for text in args.clock),
        jitter=args.jitter,
        gap=round(args.gap_us * US),
        seed=args.seed,
        causes=tuple(parse(text) for text in args.cause),
        sync_events=args.sync_events,
        with_stack=args.with_stack,
    )


def _clock(text: str) -> Clock:
    offset, _, drift = text.partition(",")
    return Clock(round(float(offset) * US), float(drift or 0))


def main(given: list[str] | None = None) -> int:
    """Write the traces; 2 and one line on bad input."""
    args = arguments(given)
    try:
        count = sum(1 for _ in write(Simulation(job_of(args)), args.out))
    except (ValueError, FileExistsError) as error:
        sys.stderr.write(f"simulate: error: {error}\n")
        return 2
    sys.stdout.write(f"Wrote {count - 1} traces and truth.json to {args.out}\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
