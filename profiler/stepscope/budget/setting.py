"""What a budget is made from, and where each of its inputs came from."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

from stepscope.budget.links import Fabric, Link, Node
from stepscope.budget.quantities import Rate, Size, Time
from stepscope.errors import InputError

if TYPE_CHECKING:
    from stepscope.budget.calibrated import Model

STAGES = (0, 1, 2, 3)
"""ZeRO stages; 0 is plain data parallelism (DDP)."""

DDP_BUCKET = Size.from_mib(25)
"""What DistributedDataParallel takes unless bucket_cap_mb says otherwise; its "mb" is 2**20 bytes."""

TYPICAL_NODE = Node(8, Link(Time.from_us(5), Rate.from_gb_per_s(300)))
"""Assumed where nothing is said about nodes: eight GPUs on NVLink."""


class Origin(StrEnum):
    """Where an input came from."""

    ASSUMED = "assumed"
    GIVEN = "command line"
    MEASURED = "measured"
    RUN = "recorded run"


@dataclass(frozen=True)
class Evidence:
    """What a measured or recorded input rests on: a file, and the 95 % interval in the unit in which the input is written."""

    source: str
    interval: tuple[float, float | None] | None = None


@dataclass(frozen=True, kw_only=True)
class Setting:
    """All inputs of a budget. Raises InputError for values that no job can have.

    compute: forward and backward of one micro-batch, without communication. backward_share: backward's share of it.
    accumulate: micro-batches an optimizer step. batch: samples a rank and micro-batch; critical_batch in the same unit.
    valid: message sizes for which a calibration's fit holds. origins: field name to origin; what it doesn't name was given.
    evidence: field name to what a measured or recorded one rests on.
    sequence, model: kind and size of a recorded run's gradient collectives in launch order, and how long each takes. Without
    them gradients are one message.
    one_link: why there is no faster link inside a node to move to, as a sentence without its end; None where there may be one.
    """

    ranks: int
    parameters: float
    link: Link
    compute: Time
    bytes_per_parameter: float = 2.0
    backward_share: float = 2 / 3
    accumulate: int = 1
    zero: int = 0
    buckets: tuple[Size, ...] = tuple(Size.from_mib(mib) for mib in (1, 8, 16, 25, 100))
    node: Node = TYPICAL_NODE
    scale_to: tuple[int, ...] = ()
    batch: float | None = None
    critical_batch: float | None = None
    valid: tuple[Size, Size] | None = None
    sequence: tuple[tuple[str, Size], ...] = ()
    model: Model | None = None
    one_link: str | None = None
    origins: Mapping[str, Origin] = field(default_factory=dict)
    evidence: Mapping[str, Evidence] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, value in self._positive().items():
            if not (math.isfinite(value) and value > 0):
                raise InputError(f"{name} of {value:g} is impossible; give a number above 0")
        if not 0 < self.backward_share < 1:
            raise InputError(
                f"a backward share of {self.backward_share:g} is none; give a number between 0 and 1"
            )
        if self.zero not in STAGES:
            raise InputError(f"there is no ZeRO stage {self.zero}; there are 0 to 3")
        if any(ranks < 2 for ranks in self.scale_to):
            raise InputError("--scale-to needs 2 ranks or more; a rank alone has nothing to communicate")
        if self.node_known and self.ranks > self.node.ranks and self.ranks % self.node.ranks:
            raise InputError(
                f"{self.node.ranks} ranks a node do not divide {self.ranks} ranks; give --gpus-per-node a divisor"
            )

    def _positive(self) -> dict[str, float]:
        named = {
            "ranks (--gpus)": self.ranks,
            "parameters (--params)": self.parameters,
            "bytes per parameter (--bytes-per-param)": self.bytes_per_parameter,
            "compute (--step-ms)": self.compute.base,
            "accumulation (--accumulate)": self.accumulate,
            "batch (--batch)": self.batch,
            "critical batch (--critical-batch)": self.critical_batch,
            **{f"bucket {number} (--buckets)": size.base for number, size in enumerate(self.buckets, 1)},
        }
        return {name: value for name, value in named.items() if value is not None}

    def origin(self, name: str) -> Origin:
        """Where a field came from."""
        return self.origins.get(name, Origin.GIVEN)

    @property
    def node_known(self) -> bool:
        """Whether the size of a node is more than an assumption."""
        return self.origin("node") != Origin.ASSUMED

    @property
    def message(self) -> Size:
        """All gradients of the model, as they go over the wire."""
        return Size.from_bytes(self.parameters * self.bytes_per_parameter)

    @property
    def fabric(self) -> Fabric:
        """What the collectives run over; the node is in it only where it is known."""
        return Fabric(self.ranks, self.link, self.node if self.node_known else None, self.one_link)

    @property
    def step(self) -> Time:
        """Compute of an optimizer step: all of its micro-batches."""
        return self.compute * self.accumulate

    @property
    def window(self) -> Time:
        """Backward of one micro-batch: what gradient communication can hide behind."""
        return self.compute * self.backward_share
