"""torchrun's own command line, for commands that extend it, and the GPUs it would start a rank for."""

from __future__ import annotations

import argparse
import os

from stepscope.errors import InputError


def torchrun_parser() -> argparse.ArgumentParser:
    """torchrun's parser; `nproc_per_node` is None where nothing says it. Raises InputError without torch."""
    try:
        from torch.distributed.run import get_args_parser
    except ImportError as error:
        raise InputError("torch is not installed; pip install 'stepscope[record]'") from error
    parser = get_args_parser()
    if "PET_NPROC_PER_NODE" not in os.environ:
        parser.set_defaults(nproc_per_node=None)
    return parser


def gpu_count() -> int:
    """How many GPUs torch sees on this node."""
    import torch

    return int(torch.cuda.device_count())
