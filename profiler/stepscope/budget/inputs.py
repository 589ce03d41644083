"""The inputs written out, each with where it came from."""

from __future__ import annotations

from collections.abc import Iterator

from stepscope.budget.memory import GRADIENT_BYTES, OPTIMIZER_BYTES, PARAMETER_BYTES
from stepscope.budget.recorded import Recorded
from stepscope.budget.result import Input
from stepscope.budget.setting import Origin, Setting

Value = float | str | tuple[float, ...]

ADAM = Input(
    name="Adam, a parameter",
    option=None,
    value=f"{PARAMETER_BYTES} + {GRADIENT_BYTES} + {OPTIMIZER_BYTES}",
    unit="bytes",
    origin=str(Origin.ASSUMED),
)


def describe(setting: Setting) -> tuple[Input, ...]:
    """Every input in a fixed order; those that are neither given nor assumed are left out."""
    rows = tuple(
        Input(
            name=name,
            option=option,
            value=value,
            unit=unit,
            origin=str(setting.origin(field)),
            interval=None if (evidence := setting.evidence.get(field)) is None else evidence.interval,
            source=None if evidence is None else evidence.source,
        )
        for field, name, option, value, unit in _rows(setting)
        if value != ()
    )
    return (*rows, ADAM)


def describe_recorded(recorded: Recorded) -> tuple[Input, ...]:
    """What a run alone tells."""
    rows: list[tuple[str, Value | None, str | None]] = [
        ("ranks", recorded.ranks, None),
        ("parameters", None if recorded.parameters is None else recorded.parameters / 1e9, "billion"),
        ("gradients, a step", recorded.message.mib, "MiB"),
        ("compute, a step", recorded.compute.ms, "ms"),
        ("backward", None if recorded.window is None else recorded.window.ms, "ms"),
        ("bucket sizes", tuple(size.mib for _, size in recorded.sequence), "MiB"),
    ]
    return tuple(
        Input(name=name, option=None, value=value, unit=unit, origin=str(Origin.RUN), source=recorded.run)
        for name, value, unit in rows
        if value is not None
    )


def _rows(setting: Setting) -> Iterator[tuple[str, str, str | None, Value, str | None]]:
    """Field of the setting, name, option, value, unit."""
    link = setting.link
    yield "ranks", "ranks", "--gpus", setting.ranks, None
    yield "parameters", "parameters", "--params", setting.parameters / 1e9, "billion"
    yield (
        "bytes_per_parameter",
        "on the wire",
        "--bytes-per-param",
        setting.bytes_per_parameter,
        "bytes a parameter",
    )
    yield "rate", "bandwidth", "--bw", link.rate.gb_per_s, "GB/s"
    yield "latency", "latency a hop", "--latency", link.latency.us, "us"
    if link.floor.base:
        yield "floor", "short bucket's least", None, link.floor.us, "us"
    if setting.valid is not None:
        yield "valid", "the fit holds from, to", None, tuple(size.mib for size in setting.valid), "MiB"
    yield "compute", "compute, micro-batch", "--step-ms", setting.compute.ms, "ms"
    yield "backward_share", "backward's share", "--backward-share", setting.backward_share, None
    yield "accumulate", "micro-batches a step", "--accumulate", setting.accumulate, None
    yield "zero", "ZeRO stage", "--zero", setting.zero, None
    yield "buckets", "bucket sizes", "--buckets", tuple(bucket.mib for bucket in setting.buckets), "MiB"
    if setting.one_link is None:
        yield from _inside_a_node(setting)
    yield "scale_to", "ranks to scale to", "--scale-to", setting.scale_to, None
    if setting.batch is not None:
        yield "batch", "batch of a rank", "--batch", setting.batch, None
    if setting.critical_batch is not None:
        yield "critical_batch", "critical batch", "--critical-batch", setting.critical_batch, None


def _inside_a_node(setting: Setting) -> Iterator[tuple[str, str, str | None, Value, str | None]]:
    inside = setting.node.link
    yield "node", "ranks a node", "--gpus-per-node", setting.node.ranks, None
    yield "node_rate", "bandwidth in a node", "--intra-bw", inside.rate.gb_per_s, "GB/s"
    yield "node_latency", "latency in a node", "--intra-latency", inside.latency.us, "us"
