"""The flags of the training script, and what follows from them: sizes, device, backend."""

from __future__ import annotations

import argparse
import dataclasses
import os
import typing
from collections.abc import Sequence

import torch

if typing.TYPE_CHECKING or __package__:
    from .corpus import ASCII_SIZE, LONGEST_BLOCK
    from .gpt import PRESETS, GPTConfig
else:  # the script was started as a plain file: its own folder is on the path
    from corpus import ASCII_SIZE, LONGEST_BLOCK
    from gpt import PRESETS, GPTConfig

SIZES = ("layers", "heads", "embed", "block_size", "vocab_size", "dropout", "tie_weights")


class Flags(argparse.Namespace):
    """The flags as given, and the last three made from them."""

    steps: int
    batch_size: int
    accumulate: int
    lr: float
    clip_grad_norm: float | None
    dtype: str
    seed: int
    log_every: int
    compile: bool
    zero: int
    bucket_cap_mb: float | None
    gradient_as_bucket_view: bool
    find_unused_parameters: bool
    static_graph: bool
    backend: str
    config: GPTConfig
    device: torch.device
    autocast: bool


def parse_flags(argv: Sequence[str] | None = None) -> Flags:
    """Return the flags of a command line, or end the process with one line that says what to change."""
    parser = argparse.ArgumentParser(
        description="Train a small GPT on text that it makes itself, data-parallel: DDP, ZeRO-1 or FSDP2.",
        epilog="Example: stepscope run --nproc-per-node 2 gpt --bucket-cap-mb 8",
        usage="stepscope run gpt [flags]   (--help lists them)",
    )
    add_model_flags(parser)
    add_training_flags(parser)
    add_parallel_flags(parser)
    args = parser.parse_args(argv, namespace=Flags())
    refuse_contradictions(parser, args)
    args.config = choose_sizes(parser, args)
    args.device = choose_device(parser, args)
    args.autocast = args.dtype == "bfloat16" and args.zero < 2  # FSDP2 casts the weights themselves
    return args


def add_model_flags(parser: argparse.ArgumentParser) -> None:
    """Add the sizes; each one that is not given comes from the preset."""
    flag = parser.add_argument_group("model").add_argument
    flag("--preset", choices=PRESETS, default="10m", help="sizes by parameter count (default: 10m)")
    flag("--layers", type=positive_int, metavar="N")
    flag("--heads", type=positive_int, metavar="N")
    flag("--embed", type=positive_int, metavar="N", help="width of the residual stream")
    flag("--block-size", type=positive_int, metavar="N", help="context length in tokens")
    flag("--vocab-size", type=positive_int, metavar="N")
    flag("--dropout", type=share, metavar="P", help="default: 0")
    flag("--tie-weights", action=argparse.BooleanOptionalAction, help="the head uses the embedding's matrix")
    flag("--activation-checkpointing", action="store_true", help="recompute each block in backward")
    flag("--compile", action="store_true", help="torch.compile: the model, or each block with --zero 2 or 3")


def add_training_flags(parser: argparse.ArgumentParser) -> None:
    """Add what a single process would need as well."""
    flag = parser.add_argument_group("training").add_argument
    flag("--steps", type=positive_int, default=16, metavar="N", help="default: 16")
    flag(
        "--batch-size", type=positive_int, default=4, metavar="N", help="of a rank's micro-batch (default: 4)"
    )
    flag("--accumulate", type=positive_int, default=1, metavar="N", help="micro-batches a step (default: 1)")
    flag("--lr", type=positive_float, default=1e-3, help="AdamW's learning rate (default: 0.001)")
    flag("--clip-grad-norm", type=positive_float, metavar="NORM")
    flag("--dtype", choices=("float32", "bfloat16"), default="float32", help="of the matrix products")
    flag("--seed", type=int, default=0)
    flag("--log-every", type=positive_int, default=50, metavar="N", help="besides the first and last step")


def add_parallel_flags(parser: argparse.ArgumentParser) -> None:
    """Add how the ranks share the work; DDP's options carry its own names."""
    flag = parser.add_argument_group("data parallelism").add_argument
    flag(
        "--zero",
        type=int,
        choices=range(4),
        default=0,
        help="0: DDP (default); 1: DDP and ZeroRedundancyOptimizer; 2, 3: FSDP2 that keeps, frees weights after forward",
    )
    flag(
        "--bucket-cap-mb", type=positive_float, metavar="MB", help="size of a DDP bucket (default: DDP's own)"
    )
    flag("--gradient-as-bucket-view", action="store_true")
    flag("--find-unused-parameters", action="store_true")
    flag("--static-graph", action="store_true")
    flag("--backend", choices=("nccl", "gloo"), help="default: nccl where there is a GPU, else gloo")


def refuse_contradictions(parser: argparse.ArgumentParser, args: Flags) -> None:
    """End with one line where flags cannot work together."""
    only_ddp = {
        "--bucket-cap-mb": args.bucket_cap_mb is not None,
        "--gradient-as-bucket-view": args.gradient_as_bucket_view,
        "--find-unused-parameters": args.find_unused_parameters,
        "--static-graph": args.static_graph,
    }
    for name, given in only_ddp.items():
        if given and args.zero >= 2:
            parser.error(
                f"{name} is DDP's and --zero {args.zero} is FSDP2: leave it out, or use --zero 0 or 1"
            )
    if args.static_graph and args.find_unused_parameters:
        parser.error("--static-graph finds unused parameters by itself: leave --find-unused-parameters out")
    if args.static_graph and args.accumulate > 1:  # https://github.com/pytorch/pytorch/issues/143580
        parser.error(
            "--static-graph fails in torch's no_sync, which --accumulate needs: leave one of them out"
        )


def choose_sizes(parser: argparse.ArgumentParser, args: Flags) -> GPTConfig:
    """Return the preset with the sizes that were given put in."""
    given = {name: getattr(args, name) for name in SIZES if getattr(args, name) is not None}
    given["activation_checkpointing"] = args.activation_checkpointing
    try:
        config = dataclasses.replace(PRESETS[args.preset], **given)
    except ValueError as error:
        parser.error(str(error))
    if config.vocab_size < ASCII_SIZE:
        parser.error(f"--vocab-size must be at least {ASCII_SIZE}, because the text is ASCII bytes")
    if config.block_size > LONGEST_BLOCK:
        parser.error(f"--block-size must be at most {LONGEST_BLOCK}, because the text is short")
    return config


def choose_device(parser: argparse.ArgumentParser, args: Flags) -> torch.device:
    """Return this rank's GPU, or the CPU where there is none, and settle the backend."""
    if not torch.cuda.is_available():
        if args.backend == "nccl":
            parser.error("--backend nccl needs a GPU and none is visible: use --backend gloo")
        args.backend = "gloo"
        return torch.device("cpu")
    args.backend = args.backend or "nccl"
    index, gpus = int(os.environ.get("LOCAL_RANK", "0")), torch.cuda.device_count()
    if index >= gpus:
        parser.error(
            f"no GPU for local rank {index}: start {gpus} a machine, or set CUDA_VISIBLE_DEVICES= for CPU"
        )
    return torch.device("cuda", index)


def positive_int(text: str) -> int:
    """Read a whole number of at least 1, or raise argparse's error."""
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1, got {value}")
    return value


def positive_float(text: str) -> float:
    """Read a number above 0, or raise argparse's error."""
    value = float(text)
    if not value > 0:
        raise argparse.ArgumentTypeError(f"must be above 0, got {value}")
    return value


def share(text: str) -> float:
    """Read a number from 0 to below 1, or raise argparse's error."""
    value = float(text)
    if not 0 <= value < 1:
        raise argparse.ArgumentTypeError(f"must be from 0 to below 1, got {value}")
    return value
