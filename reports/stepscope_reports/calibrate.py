"""A calibration for a terminal: alpha and B first, then a table for each collective with what the fit makes of each size."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TextIO

from rich.text import Text

from stepscope.budget.measured import Calibration, Collective, Fit, Point, not_usable
from stepscope.units import plural
from stepscope_reports.plain import clean, paragraph, table, write_lines

WIDTH = 80
_COLUMNS = ("size", "time us", "from", "to", "algbw", "busbw", "fit us", "fit off")


def render(made: Calibration, stream: TextIO) -> None:
    """Write the report to a text stream, in 80 columns."""
    write_lines(_lines(made), stream)


def _lines(made: Calibration) -> Iterable[Text]:
    if made.unusable is not None:
        yield from (Text(line.plain, "bold") for line in paragraph(not_usable(made.unusable), WIDTH))
        yield Text()
    hosts = ", ".join(clean(host) for host in made.hosts[:4])
    more = f" and {len(made.hosts) - 4} more" if len(made.hosts) > 4 else ""
    yield from paragraph(
        f"{plural(made.world_size, 'rank')} of {made.backend} on {hosts}{more}: {made.transport}", WIDTH
    )
    if made.emulated is not None:
        yield from paragraph(_emulated(made), WIDTH)
    if made.alpha_us is not None and made.bandwidth_gb_per_s is not None:
        yield Text()
        fit = next(one.fit for one in made.collectives if one.name == made.source)
        assert fit is not None
        yield Text.assemble((f"{_figures(fit)}", "bold"), (f"  ({made.source})", "dim"))
    for one in made.collectives:
        yield Text()
        yield from _collective(one)


def _emulated(made: Calibration) -> str:
    told = made.emulated or {}
    rate, inter, share = (
        told.get(key) for key in ("rate_bit_per_s", "rate_inter_bit_per_s", "payload_share")
    )
    if not isinstance(rate, int) or not isinstance(share, float):
        return "emulated fabric"
    between = (
        f", {told.get('nodes')} nodes with uplinks of {inter / 1e6:g} Mbit/s"
        if isinstance(inter, int)
        else ""
    )
    return (
        f"links of {rate / 1e6:g} Mbit/s, that is {rate / 8e9:.4g} GB/s, of which {rate / 8e9 * share:.4g} GB/s "
        f"carry data (TCP/IP and Ethernet headers take {100 * (1 - share):.1f} %){between}"
    )


def _figures(fit: Fit) -> str:
    return (
        f"alpha {_short(fit.alpha_us)} us ({_span(fit.alpha_us_interval)}), "
        f"B {_short(fit.bandwidth_gb_per_s)} GB/s ({_span(fit.bandwidth_gb_per_s_interval)})"
    )


def _collective(one: Collective) -> Iterable[Text]:
    yield Text(f"{one.name}: time = {one.hops} alpha + {one.volume:.4g} S/B", "bold")
    if one.fit is not None:
        yield Text(f"  {_figures(one.fit)}")
        if one.fit.floor_us is not None:
            start = _size(one.fit.fitted_from_bytes)
            yield Text(f"  fitted from {start} on; short operations take {_short(one.fit.floor_us)} us")
        if one.fit.valid_bytes is not None:
            low, high = (_size(value) for value in one.fit.valid_bytes)
            yield Text(f"  within {100 * one.fit.tolerance:.0f} % from {low} to {high}")
    for remark in one.remarks:
        yield from (Text(f"  {line}") for line in paragraph(remark, WIDTH - 2))
    yield from table(_COLUMNS, [_row(point) for point in one.points])


def _row(point: Point) -> tuple[str, ...]:
    return (
        _size(point.bytes),
        _time(point.time_us),
        *map(_time, point.time_us_quartiles),
        f"{point.algbw_gb_per_s:.4f}" if point.algbw_gb_per_s < 10 else f"{point.algbw_gb_per_s:.2f}",
        f"{point.busbw_gb_per_s:.4f}" if point.busbw_gb_per_s < 10 else f"{point.busbw_gb_per_s:.2f}",
        "n/a" if point.model_us is None else _time(point.model_us),
        "n/a" if point.residual is None else f"{100 * point.residual:+.1f} %",
    )


def _time(microseconds: float) -> str:
    return f"{microseconds:.1f}" if microseconds < 1000 else f"{microseconds:.0f}"


def _short(value: float) -> str:
    return f"{value:.3g}" if value < 1000 else f"{value:.0f}"


def _span(interval: tuple[float, float | None]) -> str:
    low, high = interval
    return f"{_short(low)} or more" if high is None else f"{_short(low)} to {_short(high)}"


def _size(count: int) -> str:
    """Binary, as nccl-tests' sizes are; a size that was rounded for the ranks to share keeps its bytes."""
    for shift, unit in ((30, "GiB"), (20, "MiB"), (10, "KiB")):
        if count >= 1 << shift and count % (1 << shift) == 0:
            return f"{count >> shift} {unit}"
    return f"{count:,} B"
