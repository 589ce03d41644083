"""`--fabric`: finds what makes the network and has it for the length of a launch. The ranks of all nodes run on this machine."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from importlib.metadata import entry_points

from stepscope.capture.place import Fabric
from stepscope.errors import InputError

Maker = Callable[[str, int, int], AbstractContextManager[Fabric]]

GROUP, NAME = "stepscope.fabrics", "emulated"
"""The entry point that makes fabrics: called with the option's text, the nodes and the ranks a node, it gives a context manager
of a `Fabric`. It raises ValueError for a text that makes no sense, OSError where this machine can't."""

HELP = (
    "emulate a network: each rank in a network namespace of its own, its link held to RATE (tc's units: 600mbit, "
    "1gbit); with --nnodes N, whose nodes all run here, RATE_INTER is the rate of each node's uplink. "
    "CPU ranks only; needs Linux, root and iproute2"
)

_ELSEWHERE = {
    "node_rank": ("--node-rank", 0),
    "rdzv_endpoint": ("--rdzv-endpoint", ""),
    "rdzv_backend": ("--rdzv-backend", "static"),
    "standalone": ("--standalone", False),
}
"""What says how nodes on several machines find each other: torchrun's names, flags and defaults."""


def add_option(parser: argparse.ArgumentParser) -> None:
    """Add --fabric to a parser of torchrun's arguments."""
    parser.add_argument("--fabric", metavar="RATE[,RATE_INTER]", help=HELP)


@contextmanager
def fabric_of(args: argparse.Namespace) -> Iterator[Fabric | None]:
    """The fabric that torchrun's parsed arguments ask for with --fabric; None if they don't.

    Its nodes become one for torchrun, in `args`: one agent starts all ranks, and ranks are numbered node by node.
    Raises InputError, in one line, where there can be no such fabric.
    """
    if args.fabric is None:
        yield None
        return
    for name, (flag, default) in _ELSEWHERE.items():
        if getattr(args, name) != default:
            raise InputError(
                f"{flag} is for nodes on several machines; with --fabric all run here, leave it out"
            )
    nodes = _number(args.nnodes, "--nnodes")
    ranks_per_node = _number(args.nproc_per_node, "--nproc-per-node")
    with ExitStack() as stack:
        try:
            fabric: Fabric = stack.enter_context(_maker()(args.fabric, nodes, ranks_per_node))
        except ValueError as error:
            raise InputError(f"--fabric {error}") from error
        except OSError as error:
            raise InputError(str(error)) from error
        args.nnodes, args.nproc_per_node = "1", str(nodes * ranks_per_node)
        yield fabric


def _maker() -> Maker:
    for entry in entry_points(group=GROUP, name=NAME):
        maker: Maker = entry.load()
        return maker
    raise InputError("no package that emulates fabrics is installed; install stepscope with its workloads")


def _number(text: str, flag: str) -> int:
    """A fixed number of nodes or processes; `2:2` is one too."""
    low, _, high = str(text).partition(":")
    if not low.isdecimal() or int(low) < 1 or high not in ("", low):
        raise InputError(f"{flag} {text} with --fabric; a fabric is made for a fixed number, write {flag} 2")
    return int(low)
