r"""Where the links of an emulated fabric are and what they are called: pure text for `ip` and `tc`, nothing is run here.

One switch namespace holds the bridges, and each rank has a namespace of its own with one interface, `eth0`. Of one node or
with one rate, all ranks hang on one bridge. With two rates each node has a bridge for its ranks, and an uplink that they share
to the bridge between nodes:

    rank 0 -- eth0 == port0 \
    rank 1 -- eth0 == port1 -- node0 -- up0 == down0 \
                                                       switch
    rank 2 -- eth0 == port2 -- node1 -- up1 == down1 /
    rank 3 -- eth0 == port3 /

Every `==` is a pair of virtual interfaces, shaped at both ends: what leaves a rank at its own, what reaches it at the port, so
that several senders to one rank share its link as they do at a real switch.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from stepscope_workloads.fabric.rates import MTU, Shape

INTERFACE = "eth0"
SWITCH = "switch"
SWITCH_ADDRESS = "10.200.0.1"
_PREFIX = 16
MOST_RANKS = 250

SETTINGS = {
    "ipv6/conf/all/disable_ipv6": "1",  # its address detection is traffic of its own
    "ipv4/tcp_congestion_control": "reno",  # the one that every kernel has, and allows in any namespace
    "ipv4/tcp_slow_start_after_idle": "0",  # a step computes between its messages
    "ipv4/tcp_no_metrics_save": "1",  # one connection's losses are no matter of the next
}
"""Sysctls of each namespace, below /proc/sys/net."""

_RECEIVE_BUFFER = "4096 131072 8388608"
"""Least, first and most, as the kernel's own; written so that no setting of the machine matters."""
_LEAST_SEND_BUFFER, _FIRST_SEND_BUFFER, _MOST_SEND_BUFFER = 4096, 65536, 8388608
UPLINK_QUEUE_S = 0.01
"""What one connection may have waiting for an uplink."""


@dataclass(frozen=True)
class Layout:
    """An emulated fabric: the ranks, in order, node by node, and the rates of their links and of the nodes' uplinks."""

    nodes: int
    ranks_per_node: int
    link: Shape
    uplink: Shape | None = None
    """None where all ranks share one bridge."""

    @property
    def ranks(self) -> range:
        """The ranks' numbers."""
        return range(self.nodes * self.ranks_per_node)

    def address(self, rank: int) -> str:
        """A rank's address in the fabric."""
        return f"10.200.1.{rank + 1}"

    def bridge(self, rank: int) -> str:
        """The bridge that a rank's port is on."""
        return SWITCH if self.uplink is None else f"node{rank // self.ranks_per_node}"

    def settings(self) -> dict[str, str]:
        """The sysctls of each rank's namespace: SETTINGS, and bounds of what waits for a link or an uplink."""
        most = _MOST_SEND_BUFFER
        if self.uplink is not None:
            most = min(most, max(4 * _FIRST_SEND_BUFFER, round(self.uplink.rate / 8 * UPLINK_QUEUE_S)))
        return {
            **SETTINGS,
            "ipv4/tcp_rmem": _RECEIVE_BUFFER,
            "ipv4/tcp_limit_output_bytes": str(self.link.backlog_bytes),
            "ipv4/tcp_wmem": f"{_LEAST_SEND_BUFFER} {_FIRST_SEND_BUFFER} {most}",
        }

    def switch_links(self, namespaces: list[str]) -> Iterator[str]:
        """Lines for `ip` in the switch namespace; `namespaces` are the ranks', as paths."""
        yield "link set lo up"
        yield from _bridge(SWITCH)
        yield f"addr add {SWITCH_ADDRESS}/{_PREFIX} dev {SWITCH}"
        for node in range(self.nodes if self.uplink else 0):
            yield from _bridge(f"node{node}")
            yield f"link add name up{node} type veth peer name down{node}"
        for end, bridge in self._uplinks():
            assert self.uplink is not None
            yield f"link set {end} {_merging(self.uplink)} master {bridge} up"
        for rank, namespace in zip(self.ranks, namespaces, strict=True):
            yield f"link add name port{rank} type veth peer name {INTERFACE} netns {namespace}"
            yield f"link set port{rank} {_merging(self.link)} master {self.bridge(rank)} up"

    def rank_links(self, rank: int) -> Iterator[str]:
        """Lines for `ip` in a rank's namespace, once its interface is there."""
        yield "link set lo up"
        yield f"link set {INTERFACE} {_merging(self.link)}"
        yield f"addr add {self.address(rank)}/{_PREFIX} dev {INTERFACE}"
        yield f"link set {INTERFACE} up"

    def switch_shapers(self) -> Iterator[str]:
        """Lines for `tc` in the switch namespace."""
        yield from (_shaper(f"port{rank}", self.link) for rank in self.ranks)
        for end, _ in self._uplinks():
            assert self.uplink is not None
            yield _shaper(end, self.uplink)

    def rank_shapers(self) -> Iterator[str]:
        """Lines for `tc` in a rank's namespace."""
        yield _shaper(INTERFACE, self.link)

    def _uplinks(self) -> Iterator[tuple[str, str]]:
        """Both ends of each node's uplink, and the bridges they are on."""
        for node in range(self.nodes if self.uplink else 0):
            yield f"up{node}", f"node{node}"
            yield f"down{node}", SWITCH


def _bridge(name: str) -> Iterator[str]:
    yield f"link add name {name} type bridge"
    yield f"link set {name} up"


def _merging(shape: Shape) -> str:
    return f"mtu {MTU} gso_max_size {shape.gso_bytes} gso_max_segs {shape.segments}"


def _shaper(interface: str, shape: Shape) -> str:
    return (
        f"qdisc add dev {interface} root tbf rate {shape.rate}bit burst {shape.burst_bytes} "
        f"limit {shape.limit_bytes}"
    )
