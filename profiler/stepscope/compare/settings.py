"""Which settings differ between two runs: what somebody may have changed on purpose, as run.json and the audit tell it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from stepscope.audit.result import Audit
from stepscope.compare.result import Setting, Side
from stepscope.plugins import installed

_FLAGS = (
    "find_unused_parameters",
    "static_graph",
    "gradient_as_bucket_view",
    "broadcast_buffers",
)
_WORKLOADS = "stepscope.workloads"
_NONE = "none"
_MIB = 1 << 20


def changed_settings(a: Audit, b: Audit, sides: tuple[Side, Side]) -> list[Setting] | None:
    """Those known of both that differ; None where one of the two has no run.json, so that nobody knows."""
    if a.run is None or b.run is None:
        return None
    one, other = _settings(a, sides[0]), _settings(b, sides[1])
    for name in (*_environment(a.run), *_environment(b.run)):
        one.setdefault(name, _NONE)
        other.setdefault(name, _NONE)
    return [
        Setting(name=name, a=one[name], b=other[name])
        for name in one
        if name in other and one[name] != other[name]
    ]


def _settings(audit: Audit, side: Side) -> dict[str, str]:
    """Name to value, as written for people; what is not known is left out."""
    run = audit.run or {}
    found = {
        **_of_ddp(run),
        "script": run.get("script"),
        "arguments": _arguments(run),
        "world size": side.world_size,
        "backend": side.backend,
        "device": side.device_name or side.device,
        "backward passes a step": max((bucket.passes for bucket in audit.buckets), default=None),
        "torch": (run.get("versions") or {}).get("torch"),
        "stacks recorded": run.get("with_stack"),
        **_environment(run),
    }
    return {name: str(value) for name, value in found.items() if value is not None}


def _of_ddp(run: Mapping[str, Any]) -> dict[str, Any]:
    """The bucket cap and flags of the run's one DDP module."""
    modules = run.get("ddp") or []
    if len(modules) != 1:
        return {"DDP modules": len(modules)}
    caps = [
        cap / _MIB for cap in modules[0].get("bucket_caps_bytes") or [modules[0].get("bucket_cap_bytes", 0)]
    ]
    cap = f"{caps[-1]:g}"
    if caps[0] != caps[-1]:
        cap = f"{cap} (the first bucket {caps[0]:g})"
    flags = {flag: modules[0].get(flag) for flag in _FLAGS}
    return {"bucket_cap_mb": cap, "comm_hook": modules[0].get("comm_hook") or _NONE, **flags}


def _arguments(run: Mapping[str, Any]) -> str | None:
    """The script's own: what follows its name on the command line."""
    command, script = run.get("command") or [], run.get("script")
    names = {script, *(name for name, point in installed(_WORKLOADS).items() if point.module == script)}
    place = next((at for at, word in enumerate(command) if word in names), None)
    return None if place is None else " ".join(command[place + 1 :]) or _NONE


def _environment(run: Mapping[str, Any]) -> dict[str, str]:
    return run.get("environment") or {}
