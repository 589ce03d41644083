"""Several files on one time axis: processes kept apart, times on the first host's clock, arrows with ids of their own."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation

import msgspec

from stepscope.audit.result import Audit, Rank

_EVENT = msgspec.json.Decoder(dict[str, msgspec.Raw])
_IDS = 1 << 33
"""Flow ids are correlation ids of 32 bits; each file's are lifted by so much more."""
_FREE_PROCESS = 1_000_000_000
"""Processes that are renumbered get numbers from here: far above what an operating system gives."""
SORT = 1 << 30
"""Kineto sorts its processes by indices below this."""
_QUOTE = b'"'


@dataclass(frozen=True, slots=True)
class Clock:
    """Turns a host's time into that of the first host, counted from the output's base; ns."""

    base: int
    offset: float = 0.0
    drift: float = 0.0
    origin: int = 0

    def place(self, time: int) -> int:
        """time: ns since the epoch on the host's own clock."""
        return time - self.base - round(self.offset + self.drift * (time - self.origin))


def clock_of(audit: Audit, rank: Rank, base: int) -> Clock:
    """The fitted clock of a rank's host (METRICS.md, Clocks); the first host's, and one that was not fitted, stay as they are."""
    for fitted in audit.clocks:
        if fitted["host"] == rank.host:
            drift = fitted["drift_ppm"] / 1e6 if "origin_ns" in fitted else 0.0
            return Clock(base, fitted["offset_ms"] * 1e6, drift, fitted.get("origin_ns", 0))
    return Clock(base)


def microseconds(nanoseconds: int) -> msgspec.Raw:
    """A time as the format writes it, to the nanosecond: a float could not hold those of absolute times."""
    sign, size = ("-" if nanoseconds < 0 else ""), abs(nanoseconds)
    return msgspec.Raw(f"{sign}{size // 1000}.{size % 1000:03d}".encode())


@dataclass(slots=True)
class Processes:
    """The process numbers in use: a file keeps its own unless an earlier file has them."""

    taken: set[bytes] = field(default_factory=set)
    renumbered: int = 0

    def number(self, wanted: bytes) -> bytes:
        """The number, as JSON, that the process is to have."""
        if wanted not in self.taken:
            self.taken.add(wanted)
            return wanted
        self.renumbered += 1
        return b"%d" % (_FREE_PROCESS + self.renumbered)


class _Arguments(msgspec.Struct, omit_defaults=True):
    """Those of the rows that say how a process is shown."""

    name: str | None = None
    sort_index: int | None = None


class Mover:
    """Puts the events of one of several files in their place.

    name: what its processes are called by. base: ns since the epoch from which the file counts.
    """

    def __init__(self, index: int, name: str, base: int, clock: Clock, processes: Processes) -> None:
        self._index = index
        self._name = name
        self._base = base
        self._clock = clock
        self._processes = processes
        self._numbers: dict[bytes, bytes] = {}

    def move(self, event: msgspec.Raw) -> bytes:
        """The event with its place in the joint trace; everything else of it, and what is no event, stays as it is."""
        try:
            fields = _EVENT.decode(event)
        except msgspec.ValidationError:
            return bytes(event)
        if (pid := fields.get("pid")) is not None:
            fields["pid"] = msgspec.Raw(self._process(bytes(pid)))
        if (time := fields.get("ts")) is not None:
            fields["ts"] = self._time(time)
        if (flow := fields.get("id")) is not None:
            fields["id"] = self._flow(flow)
        if bytes(fields.get("ph", b"")) == b'"M"':
            self._mark(fields)
        return msgspec.json.encode(fields)

    def _process(self, pid: bytes) -> bytes:
        if pid not in self._numbers:
            named = pid.startswith(_QUOTE)  # as Kineto's "Spans" and "Traces"
            self._numbers[pid] = self._called(pid) if named else self._processes.number(pid)
        return self._numbers[pid]

    def _called(self, name: bytes) -> bytes:
        return msgspec.json.encode(f"{self._name}: {msgspec.json.decode(name)}")

    def _time(self, time: msgspec.Raw) -> msgspec.Raw:
        try:
            own = self._base + int(Decimal(bytes(time).strip(_QUOTE).decode()) * 1000)
        except (InvalidOperation, OverflowError, ValueError):
            return time
        return microseconds(self._clock.place(own))

    def _flow(self, flow: msgspec.Raw) -> msgspec.Raw:
        text = bytes(flow)
        if text.isdigit():
            return msgspec.Raw(b"%d" % (int(text) + self._index * _IDS))
        return msgspec.Raw(b'"%d:' % self._index + text[1:]) if text.startswith(_QUOTE) else flow

    def _mark(self, fields: dict[str, msgspec.Raw]) -> None:
        """Name the rank in its processes' names, and sort these by rank."""
        with suppress(msgspec.ValidationError):
            args = msgspec.json.decode(fields.get("args", b"{}"), type=_Arguments)
            if args.name is not None and bytes(fields.get("name", b"")) == b'"process_name"':
                args.name = f"{self._name}: {args.name}"
            elif args.sort_index is not None and bytes(fields.get("name", b"")) == b'"process_sort_index"':
                args.sort_index += self._index * SORT
            else:
                return
            fields["args"] = msgspec.Raw(msgspec.json.encode(args))
