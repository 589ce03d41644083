"""Rates of links as tc writes them, and the token bucket that holds a link to its rate."""

from __future__ import annotations

import re
from dataclasses import dataclass

MTU = 1500
ETHERNET_HEADER = 14
IP_HEADER = 20
TCP_HEADER = 32
"""20 bytes, and 12 of the timestamp option."""
FRAME = MTU + ETHERNET_HEADER
"""What the shaper counts for a full packet."""
SEGMENT = MTU - IP_HEADER - TCP_HEADER
"""The payload of a full packet: 1448 bytes."""

LOWEST, HIGHEST = 1_000_000, 100_000_000_000
"""Below 1 mbit one packet takes 12 ms, above 100 gbit no machine shapes."""

PACKET_TIME_S = 100e-6
"""How long a link may be busy with one packet of the sender's stack: packets are merged up to this, to save processor time."""
BURST_TIME_S = 100e-6
"""What a link may catch up on after its timer was late. As much of a message after a pause passes at once, so it is short."""
BACKLOG_TIME_S = 500e-6
"""What the sender's stack may have waiting for its own link: acknowledgements wait behind it, and so do short messages."""
QUEUE_TIME_S = 0.25
"""Room before a port drops: the senders' windows, not this, keep queues short."""

_PREFIXES = {
    "": 1,
    "k": 10**3,
    "m": 10**6,
    "g": 10**9,
    "t": 10**12,
    "ki": 2**10,
    "mi": 2**20,
    "gi": 2**30,
    "ti": 2**40,
}
_RATE = re.compile(r"(\d+(?:\.\d+)?)\s*([kmgt]i?)?(bit|bps)", re.IGNORECASE)


def parse_rate(text: str) -> int:
    """Bits a second of `600mbit`, `1gbit`, `125mbps`, in the units of tc: bit is bits, bps is bytes a second.

    Raises ValueError with what to write instead.
    """
    match = _RATE.fullmatch(text.strip())
    if match is None:
        raise ValueError(
            f"{text!r} is no rate; write a number and a unit as tc does, such as 600mbit or 1gbit"
        )
    number, prefix, unit = match.groups()
    rate = round(float(number) * _PREFIXES[(prefix or "").lower()] * (8 if unit.lower() == "bps" else 1))
    if not LOWEST <= rate <= HIGHEST:
        raise ValueError(f"{text!r} is out of range; an emulated link has from 1mbit to 100gbit")
    return rate


@dataclass(frozen=True)
class Shape:
    """A link's rate, and the sizes that make a token bucket keep it."""

    rate: int
    """Bits a second on the wire, Ethernet headers included."""

    @property
    def segments(self) -> int:
        """Packets that the sender's stack may hand over as one."""
        return max(1, min(43, int(self.rate / 8 * PACKET_TIME_S / FRAME)))

    @property
    def gso_bytes(self) -> int:
        """The largest such packet: IP and TCP headers once, then the segments' payload."""
        return IP_HEADER + TCP_HEADER + self.segments * SEGMENT

    @property
    def burst_bytes(self) -> int:
        """The bucket: one packet, and what timers may be late by."""
        return self.segments * FRAME + max(FRAME, round(self.rate / 8 * BURST_TIME_S))

    @property
    def backlog_bytes(self) -> int:
        """What one connection may have waiting at the sender; four packets at least, for the link never to run dry."""
        return max(4 * self.segments * FRAME, round(self.rate / 8 * BACKLOG_TIME_S))

    @property
    def limit_bytes(self) -> int:
        """The queue before packets are dropped."""
        return max(256 * FRAME, round(self.rate / 8 * QUEUE_TIME_S))

    @property
    def payload_bytes_per_s(self) -> float:
        """What is left of the rate for the payload of full packets, in bytes a second."""
        return self.rate / 8 * SEGMENT / FRAME
