"""A second, plain reading of a trace: the whole file by the json module, one event after the other, exact decimals.

It is what the reader's columns are compared with; it takes well-formed files only.
"""

from __future__ import annotations

import gzip
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

from stepscope.trace.columns import NO_ID, Category, Trace

_CATEGORIES = {
    "cpu_op": Category.CPU_OP,
    "user_annotation": Category.USER_ANNOTATION,
    "cuda_runtime": Category.RUNTIME,
    "cuda_driver": Category.RUNTIME,
    "kernel": Category.KERNEL,
    "gpu_memcpy": Category.MEMCPY,
    "gpu_memset": Category.MEMSET,
    "cuda_sync": Category.CUDA_SYNC,
    "overhead": Category.OVERHEAD,
}
_DEVICE = (Category.KERNEL, Category.MEMCPY, Category.MEMSET, Category.CUDA_SYNC)


def load(path: Path) -> Any:
    """The document of a plain or gzipped file, numbers with a fraction as Decimal."""
    text = path.read_bytes()
    return json.loads(gzip.decompress(text) if text[:2] == b"\x1f\x8b" else text, parse_float=Decimal)


def plain_rows(document: Any) -> list[tuple[Any, ...]]:
    """Category, name, start, duration (ns, from the earliest), pid, tid, correlation, device and stream per event."""
    events = document if isinstance(document, list) else document["traceEvents"]
    kept = [event for event in events if event["ph"] == "X" and event.get("cat") in _CATEGORIES]
    earliest = min(_ns(event["ts"]) for event in kept)
    return [_plain_row(event, earliest) for event in kept]


def _plain_row(event: dict[str, Any], earliest: int) -> tuple[Any, ...]:
    category = _CATEGORIES[event["cat"]]
    args = event.get("args", {})
    linked = category is not Category.CPU_OP
    placed = category in _DEVICE
    return (
        category,
        event["name"],
        _ns(event["ts"]) - earliest,
        _ns(event["dur"]),
        event["pid"],
        event["tid"],
        args.get("correlation", NO_ID) if linked else NO_ID,
        args["device"] if placed else NO_ID,
        args["stream"] if placed else NO_ID,
    )


def _ns(microseconds: int | float | Decimal) -> int:
    return int((Decimal(str(microseconds)) * 1000).to_integral_value())


def rows_of(trace: Trace) -> list[tuple[Any, ...]]:
    """The same rows, from the reader's columns."""
    events = trace.events
    names = [trace.names[index] for index in events.name]
    return list(
        zip(
            events.category.tolist(),
            names,
            events.start.tolist(),
            events.duration.tolist(),
            events.pid.tolist(),
            events.tid.tolist(),
            events.correlation.tolist(),
            events.device.tolist(),
            events.stream.tolist(),
            strict=True,
        )
    )
