"""Setting the bucket cap of the DDP modules that a script makes, whatever the script itself asks for."""

from __future__ import annotations

import functools
import inspect
from typing import Any

from torch.nn.parallel import DistributedDataParallel


class BucketCapOverride:
    """Every DDP module made after `install` gets `cap_mb`; it stays installed to the script's end.

    replaced: for each module that asked for a cap of its own, that cap in MiB (the largest of a list of them).
    """

    def __init__(self, cap_mb: float) -> None:
        self.replaced: list[float] = []
        self._cap_mb = cap_mb

    def install(self) -> None:
        """Replace DDP's constructor; do it before anything else wraps that."""
        original = DistributedDataParallel.__init__
        signature = inspect.signature(original)

        @functools.wraps(original)
        def replacement(*args: Any, **kwargs: Any) -> None:
            asked = signature.bind(*args, **kwargs)
            caps = asked.arguments.pop("bucket_cap_mb_list", None) or [asked.arguments.get("bucket_cap_mb")]
            self.replaced += [] if caps[0] is None else [float(max(caps))]
            asked.arguments["bucket_cap_mb"] = self._cap_mb
            original(*asked.args, **asked.kwargs)

        DistributedDataParallel.__init__ = replacement  # type: ignore[method-assign]
