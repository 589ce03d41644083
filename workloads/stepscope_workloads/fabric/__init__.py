"""An emulated network between ranks on one machine: every rank in a network namespace of its own, links of chosen rates.

Loopback is too fast for communication to matter on a laptop or in CI. Here the ranks' sockets pass virtual Ethernet links that
a token bucket (`tc tbf`) holds to a rate, so that the communication of a training step costs what it would on such a network.
Only namespaces made here are touched: no interface, address or rule of the machine changes. They have no names, and last as
long as the process that made them or a rank in them; the kernel removes them then, even after SIGKILL.

A token bucket gives an idle link back what its timers were late by: up to a burst (`rates.py`, 0.2 ms of the rate) passes at
once. The rates of larger messages hold; in short ones latency hides behind transfer instead of adding to it.

Needs Linux, root (CAP_SYS_ADMIN and CAP_NET_ADMIN) and iproute2. The ranks reach one another and nothing else.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from typing import Any

from stepscope_workloads.fabric.layout import INTERFACE, MOST_RANKS, SWITCH_ADDRESS, Layout
from stepscope_workloads.fabric.namespaces import Namespace
from stepscope_workloads.fabric.rates import FRAME, MTU, SEGMENT, Shape, parse_rate


@dataclass(frozen=True)
class Place:
    """Where one rank runs: its network namespace, as a path that exists while the fabric does, and variables to set there."""

    namespace: str
    environment: dict[str, str]


@dataclass(frozen=True)
class Fabric:
    """What a launcher needs to know of a fabric that is up."""

    namespace: str
    """Where the launcher's own store must listen, on all addresses."""
    ranks: list[Place]
    description: dict[str, Any]
    """For the record: rates, overhead and layout."""


def plan(text: str, nodes: int, ranks_per_node: int) -> Layout:
    """The fabric that `RATE` or `RATE,RATE_INTER` asks for; rates are those of tc, such as 600mbit or 1gbit.

    RATE is a rank's link, both ways; RATE_INTER a node's uplink, which its ranks share. Raises ValueError where that makes no
    sense for so many nodes and ranks.
    """
    rates = [parse_rate(part) for part in text.split(",")]
    if len(rates) > 2:
        raise ValueError(f"{text!r} has more than two rates; write RATE or RATE,RATE_INTER")
    if len(rates) == 2 and nodes == 1:
        raise ValueError(
            f"{text!r} has a rate between nodes and there is one node; add --nnodes 2 or leave it out"
        )
    if not 2 <= nodes * ranks_per_node <= MOST_RANKS:
        raise ValueError(
            f"{nodes * ranks_per_node} ranks; an emulated fabric connects from 2 to {MOST_RANKS}"
        )
    return Layout(nodes, ranks_per_node, Shape(rates[0]), Shape(rates[1]) if len(rates) == 2 else None)


@contextmanager
def emulate(text: str, nodes: int, ranks_per_node: int) -> Iterator[Fabric]:
    """Have a fabric as `plan` says, for as long as the context lasts.

    Raises ValueError for rates that make no sense, OSError with one line to act on where this machine can't emulate it.
    """
    layout = plan(text, nodes, ranks_per_node)
    _check_machine()
    with ExitStack() as stack:
        switch = stack.enter_context(closing(_namespace()))
        ranks = [stack.enter_context(closing(_namespace())) for _ in layout.ranks]
        _build(layout, switch, ranks)
        yield Fabric(
            switch.path,
            [Place(namespace.path, _environment(layout, rank)) for rank, namespace in enumerate(ranks)],
            _description(layout),
        )


def _check_machine() -> None:
    if sys.platform != "linux":
        raise OSError("an emulated fabric needs Linux network namespaces; leave --fabric out on this system")
    missing = [program for program in ("ip", "tc") if shutil.which(program) is None]
    if missing:
        raise OSError(
            f"an emulated fabric needs {' and '.join(missing)} of iproute2; install iproute2 with root"
        )
    if os.geteuid() != 0:
        raise OSError(
            "an emulated fabric needs root to make network namespaces; run as root, or leave --fabric out"
        )


def _namespace() -> Namespace:
    try:
        return Namespace()
    except OSError as error:
        raise OSError(
            f"cannot make a network namespace ({error.strerror}); an emulated fabric needs CAP_SYS_ADMIN, in a "
            "container too; leave --fabric out"
        ) from error


def _build(layout: Layout, switch: Namespace, ranks: list[Namespace]) -> None:
    switch.write(layout.settings())
    switch.run(["ip", "-batch", "-"], [*layout.switch_links([rank.path for rank in ranks])])
    switch.run(["tc", "-batch", "-"], [*layout.switch_shapers()])
    for rank, namespace in enumerate(ranks):
        namespace.write(layout.settings())
        namespace.run(["ip", "-batch", "-"], [*layout.rank_links(rank)])
        namespace.run(["tc", "-batch", "-"], [*layout.rank_shapers()])


def _environment(layout: Layout, rank: int) -> dict[str, str]:
    """What torchrun would set on these nodes, and the one interface for each backend."""
    return {
        "MASTER_ADDR": SWITCH_ADDRESS,
        "LOCAL_RANK": str(rank % layout.ranks_per_node),
        "LOCAL_WORLD_SIZE": str(layout.ranks_per_node),
        "GROUP_RANK": str(rank // layout.ranks_per_node),
        "GROUP_WORLD_SIZE": str(layout.nodes),
        "GLOO_SOCKET_IFNAME": INTERFACE,
        "NCCL_SOCKET_IFNAME": INTERFACE,
        "TP_SOCKET_IFNAME": INTERFACE,
        "CUDA_VISIBLE_DEVICES": "",  # GPUs of one machine would reach one another past the fabric
        "HIP_VISIBLE_DEVICES": "",
        # torch warns that it finds no name for the store's clients: there is no DNS here
        "TORCH_CPP_LOG_LEVEL": os.environ.get("TORCH_CPP_LOG_LEVEL", "ERROR"),
    }


def _description(layout: Layout) -> dict[str, Any]:
    return {
        "kind": "emulated",
        "rate_bit_per_s": layout.link.rate,
        "rate_inter_bit_per_s": None if layout.uplink is None else layout.uplink.rate,
        "nodes": layout.nodes,
        "ranks_per_node": layout.ranks_per_node,
        "mtu": MTU,
        "payload_share": SEGMENT / FRAME,
    }
