"""How long a bucket takes: by the run's own collectives, a calibration, or a link that was given; for any number of ranks."""

from __future__ import annotations

from dataclasses import dataclass

from msgspec.structs import replace

from stepscope.audit.case import Case
from stepscope.audit.rebucket import Link, Timing, link_of
from stepscope.budget.calibrated import Model, measured_model
from stepscope.budget.measured import not_usable, read_fabric
from stepscope.budget.quantities import Rate, Size, Time
from stepscope.errors import InputError
from stepscope.predict import result

_MIB = 1 << 20

_LEVEL = (
    "of the gradients' transfers what each would take with the link to itself; the ring model of an audit takes all transfers as "
    "long as they were, so its rate is lower where they shared the link"
)
_NO_LATENCY = "the transfers do not tell latency from bandwidth: no latency is assumed"


@dataclass(frozen=True, slots=True)
class Wanted:
    """The link asked for: bandwidth in bytes/ns (= GB/s), latency a hop in us, a calibration's file; None as recorded."""

    gb_per_s: float | None = None
    latency_us: float | None = None
    fabric: str | None = None


@dataclass(frozen=True, slots=True)
class Timed:
    """A timing, and where it is from. own: whether it is the run's, whose transfers then set its level."""

    time: Timing
    own: bool
    plain: result.Link


def ring_volume(ranks: int) -> float:
    """Bytes on a rank's link over the message's, in a ring all-reduce."""
    return 2 * (ranks - 1) / ranks


def hops(ranks: int) -> int:
    """Messages one after the other in a ring all-reduce."""
    return 2 * (ranks - 1)


def timing_of(case: Case, recorded: int, ranks: int, wanted: Wanted) -> Timed:
    """What buckets take among `ranks`; recorded: of how many ranks the run was. Raises InputError where nothing tells."""
    if wanted.fabric is not None:
        return _calibrated(wanted, ranks)
    own = link_of(case)
    if own is None:
        raise InputError("no gradient transfer's time and size are in the recording; give --bw and --latency")
    latency, per_byte = _among(own, recorded, ranks)
    remarks = [_LEVEL] if own.latency else [_LEVEL, _NO_LATENCY]
    if wanted.latency_us is not None:
        latency, remarks = hops(ranks) * wanted.latency_us * 1e3, [_LEVEL]
    if wanted.gb_per_s is not None:
        per_byte = ring_volume(ranks) / wanted.gb_per_s
        remarks = [remark for remark in remarks if remark != _LEVEL]
    given = [
        name
        for name, value in (("--bw", wanted.gb_per_s), ("--latency", wanted.latency_us))
        if value is not None
    ]
    source = f"{' and '.join(given)}" + ("" if len(given) == 2 else ", the rest the run's own transfers")
    link = Link(latency, per_byte)
    return Timed(
        link.time,
        own=not given,
        plain=_plain(link, ranks, source if given else "the run's own gradient transfers", remarks),
    )


def _plain(link: Link, ranks: int, source: str, remarks: list[str]) -> result.Link:
    return result.Link(
        latency_us=link.latency / 1e3,
        gb_per_s=1 / link.per_byte,
        alpha_us=link.latency / 1e3 / hops(ranks) if ranks > 1 else None,
        bus_gb_per_s=ring_volume(ranks) / link.per_byte if ranks > 1 else None,
        source=source,
        remarks=remarks,
    )


def _among(own: Link, recorded: int, ranks: int) -> tuple[float, float]:
    """Latency and ns a byte among another number of ranks, each with the same link, in a ring."""
    if recorded < 2:
        return own.latency, own.per_byte
    return (
        own.latency * hops(ranks) / hops(recorded),
        own.per_byte * ring_volume(ranks) / ring_volume(recorded),
    )


def _calibrated(wanted: Wanted, ranks: int) -> Timed:
    assert wanted.fabric is not None
    latency = None if wanted.latency_us is None else Time.from_us(wanted.latency_us)
    rate = None if wanted.gb_per_s is None else Rate.from_gb_per_s(wanted.gb_per_s)
    made = read_fabric(wanted.fabric)
    model = measured_model(made, ranks, latency=latency, rate=rate)

    time = time_by(model, ranks)
    link = Link(time(0), (time(101 * _MIB) - time(_MIB)) / (100 * _MIB))
    plain = _plain(link, ranks, f"the calibration in {wanted.fabric}", _outside(model))
    if made.unusable is not None and (latency is None or rate is None):
        plain = replace(plain, warning=not_usable(made.unusable, wanted.fabric))
    return Timed(time, own=False, plain=plain)


def time_by(model: Model, ranks: int) -> Timing:
    """What an all-reduce of so many ranks takes by a model of the link."""
    terms = model.terms("all_reduce")
    return lambda size: terms.time("all_reduce", ranks, Size.from_bytes(size)).us * 1e3


def _outside(model: Model) -> list[str]:
    valid = model.terms("all_reduce").valid
    if valid is None:
        return []
    return [
        f"the calibration holds from {valid[0].mib:.2g} to {valid[1].mib:.3g} MiB; other sizes are extrapolated"
    ]
