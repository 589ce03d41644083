"""DDP's buckets: which parameter goes where, and the order in which gradients arrive."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from stepscope_workloads.simulate.causes import LateParameter, OneBucket, SmallBuckets
from stepscope_workloads.simulate.job import BYTES_OF, Job

Parameter = tuple[int, int]
"""Number of the layer, number of the parameter in it."""


@dataclass(frozen=True, slots=True)
class Buckets:
    """Bucket number of every parameter, elements of every bucket, and the parameter whose gradient comes last, if one does."""

    number: dict[Parameter, int]
    elements: tuple[int, ...]
    late: Parameter | None

    @classmethod
    def of(cls, job: Job) -> Buckets:
        """Fill buckets in the order in which backward reaches the parameters; one is full once it has reached its cap."""
        width = BYTES_OF[job.model.dtype]
        order = list(arrivals(job))
        number: dict[Parameter, int] = {}
        sizes: list[int] = []
        room = 0
        for parameter, elements in order:
            if room <= 0:
                room = _cap(job, first=not sizes)
                sizes.append(0)
            number[parameter] = len(sizes) - 1
            sizes[-1] += elements
            room -= elements * width
        late = order[0][0] if job.cause(LateParameter) else None
        return cls(number, tuple(sizes), late)


def arrivals(job: Job) -> Iterator[tuple[Parameter, int]]:
    """Parameters with their elements, in the order in which backward reaches them: the reverse of registration."""
    for number in reversed(range(len(job.model.layers))):
        for k, elements in reversed(list(enumerate(job.model.layers[number].parameters))):
            yield (number, k), elements


def _cap(job: Job, first: bool) -> int:
    small = job.cause(SmallBuckets)
    if job.cause(OneBucket):
        return job.model.elements * BYTES_OF[job.model.dtype]
    if small:
        return round(small.cap_kb * 1024)
    return job.first_bucket if first and job.first_bucket is not None else job.bucket_cap


class Reducer:
    """Counts gradients as they arrive; a bucket may be reduced when it is full and all before it have been."""

    def __init__(self, buckets: Buckets) -> None:
        self._missing = [0] * len(buckets.elements)
        self._buckets = buckets
        for bucket in buckets.number.values():
            self._missing[bucket] += 1
        self._next = 0

    def arrived(self, parameter: Parameter) -> list[int]:
        """The buckets that may be reduced now that a parameter's gradient is there."""
        self._missing[self._buckets.number[parameter]] -= 1
        first = self._next
        while self._next < len(self._missing) and not self._missing[self._next]:
            self._next += 1
        return list(range(first, self._next))
