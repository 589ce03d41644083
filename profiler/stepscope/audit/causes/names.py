"""Names of parameters, where run.json has DDP's own account of its buckets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def last_of_bucket(run: Mapping[str, Any] | None, bucket: int) -> str | None:
    """The parameter that completes a bucket, by its place in launch order; None where the run does not tell."""
    modules = (run or {}).get("ddp", [])
    if len(modules) != 1 or not modules[0]["in_ready_order"]:
        return None
    buckets, parameters = modules[0]["rebuilt_bucket_parameters"], modules[0]["parameters"]
    if bucket >= len(buckets):
        return None
    names = [parameter["name"] for parameter in parameters if parameter["index"] in buckets[bucket]]
    return names[-1] if names else None


def of_size(run: Mapping[str, Any] | None, elements: int) -> str | None:
    """The one parameter of so many elements; None where the run tells of none or of several."""
    modules = (run or {}).get("ddp", [])
    names = [one["name"] for module in modules for one in module["parameters"] if one["numel"] == elements]
    return names[0] if len(names) == 1 else None
