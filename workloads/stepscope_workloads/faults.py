"""Train as train.py does, with faults put in on purpose that break the overlap of DDP's communication.

python -m torch.distributed.run --nproc-per-node 2 -m stepscope_workloads.faults --fault straggler:rank=1,ms=50

Faults combine: `--fault` may be repeated, and `--fault none` is the clean twin.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import sys
import typing
from collections.abc import Sequence

import torch
import torch.distributed as dist
from torch import Tensor, nn

from stepscope_workloads import train
from stepscope_workloads.broken import FAULTS, Fault
from stepscope_workloads.flags import Flags, parse_flags
from stepscope_workloads.gpt import GPT


def main(argv: Sequence[str] | None = None) -> None:
    """Read the faults and the script's flags, and run the script with its functions broken accordingly."""
    faults, args = read_flags(argv)
    train.start_process_group(args)
    run(faults, args)
    dist.destroy_process_group()


def run(faults: Sequence[Fault], args: Flags) -> None:
    """Train with some faults in the place of what they break."""
    whole = train.parallelise, train.accumulate_gradients
    train.parallelise = functools.partial(parallelise, faults, train.parallelise)
    train.accumulate_gradients = functools.partial(accumulate_gradients, faults)
    try:
        train.train(args)
    finally:
        train.parallelise, train.accumulate_gradients = whole


def parallelise(
    faults: Sequence[Fault], wrap: typing.Callable[[typing.Any, Flags], nn.Module], model: GPT, args: Flags
) -> nn.Module:
    """Wrap the model as the script does, with the faults that sit in it."""
    outermost: nn.Module = model
    for fault in faults:
        changed = fault.change_model(model, args)
        outermost = outermost if changed is model else changed
    parallel = wrap(outermost, args)
    for fault in faults:
        fault.change_parallel(parallel)
    return parallel


def accumulate_gradients(
    faults: Sequence[Fault], model: nn.Module, data: Tensor, step: int, args: Flags
) -> Tensor:
    """Run a step's micro-batches as the script does, with the faults that sit between them."""
    total = torch.zeros((), device=args.device)
    for micro in range(args.accumulate):
        inputs, targets = train.next_batch(data, step, micro, args)
        for fault in faults:
            fault.before_forward()
        last = micro == args.accumulate - 1
        with train.gradient_sync(model, last=functools.reduce(lambda sync, f: f.reduces(sync), faults, last)):
            with torch.autocast(args.device.type, torch.bfloat16, enabled=args.autocast):
                loss = model(inputs, targets) / args.accumulate
            for fault in faults:
                fault.before_backward(loss)
            loss.backward()
        total += loss.detach()
    for fault in faults:
        fault.after_backward(model)
    return total


def read_flags(argv: Sequence[str] | None) -> tuple[list[Fault], Flags]:
    """The faults and the script's flags, with what the faults make of them; a mistake ends the process with one line."""
    parser = argument_parser()
    ours, rest = parser.parse_known_args(argv)
    faults: list[Fault] = ours.fault
    args = parse_flags(rest)
    if args.zero >= 2:
        parser.error(f"the faults are DDP's and --zero {args.zero} is FSDP2: use --zero 0 or 1")
    try:
        for fault in faults:
            fault.change_flags(args)
    except argparse.ArgumentTypeError as error:
        parser.error(str(error))
    return faults, args


def read_fault(text: str) -> Fault:
    """A fault as the command line gives it: NAME[:SETTING=VALUE,...]. Raises argparse's error with what there is."""
    name, _, settings = text.partition(":")
    if name not in FAULTS:
        raise argparse.ArgumentTypeError(f"no fault {name!r}; there are {', '.join(FAULTS)}")
    kinds = typing.get_type_hints(FAULTS[name])
    given: dict[str, typing.Any] = {}
    for setting in filter(None, settings.split(",")):
        key, _, value = setting.partition("=")
        if key not in kinds:
            raise argparse.ArgumentTypeError(
                f"{name} has no setting {key!r}; it has {', '.join(kinds) or 'none'}"
            )
        try:
            given[key] = value in ("1", "true", "yes") if kinds[key] is bool else kinds[key](value)
        except ValueError:
            raise argparse.ArgumentTypeError(f"{key} of {name} is no number: {value!r}") from None
    return FAULTS[name](**given)


def argument_parser() -> argparse.ArgumentParser:
    """The parser of `--fault`; every other flag is the training script's."""
    listed = "\n".join(f"  {name}{_settings(fault)}\n      {fault.__doc__}" for name, fault in FAULTS.items())
    parser = argparse.ArgumentParser(
        prog="gpt-faults",
        description=__doc__,
        epilog=f"faults, with the settings' defaults:\n{listed}\n\nAll other flags are the training script's.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument(
        "--fault",
        action="append",
        type=read_fault,
        required=True,
        metavar="NAME[:SETTING=VALUE,...]",
        help="may be repeated",
    )
    return parser


def _settings(fault: type[Fault]) -> str:
    given = [f"{f.name}={f.default}" for f in dataclasses.fields(typing.cast("typing.Any", fault))]
    return f":{','.join(given)}" if given else ""


if __name__ == "__main__":
    main(sys.argv[1:])
