"""Sizes, rates and times as types of their own, so that GB, MiB, bits, ms and us can't be taken for one another.

A quantity is made from a number with its unit named (`Size.from_mib(25)`) and read back the same way (`size.mib`). Only
quantities of one kind add up or compare; a size over a rate is a time; anything else is a TypeError at run time and an
error for the type checker. GB is 1e9 bytes, as network rates are; MiB is 2**20 bytes, as bucket sizes are.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self, overload

GB = 1e9
MIB = 2.0**20
GIB = 2.0**30
BITS_A_BYTE = 8


@dataclass(frozen=True, slots=True, order=True)
class _Quantity:
    """A number in the base unit of its kind: bytes, bytes a second, or seconds."""

    base: float

    def _same(self, other: object) -> bool:
        return type(other) is type(self)

    def __add__(self, other: Self) -> Self:
        return type(self)(self.base + other.base) if self._same(other) else NotImplemented

    def __sub__(self, other: Self) -> Self:
        return type(self)(self.base - other.base) if self._same(other) else NotImplemented

    def __mul__(self, factor: float) -> Self:
        return type(self)(self.base * factor) if isinstance(factor, int | float) else NotImplemented

    __rmul__ = __mul__


class Time(_Quantity):
    """A duration."""

    __slots__ = ()

    @classmethod
    def from_ms(cls, value: float) -> Self:
        """From milliseconds."""
        return cls(value / 1e3)

    @classmethod
    def from_us(cls, value: float) -> Self:
        """From microseconds."""
        return cls(value / 1e6)

    @property
    def ms(self) -> float:
        """In milliseconds."""
        return self.base * 1e3

    @property
    def us(self) -> float:
        """In microseconds."""
        return self.base * 1e6

    @overload
    def __truediv__(self, other: Time) -> float: ...
    @overload
    def __truediv__(self, other: float) -> Time: ...
    def __truediv__(self, other: Time | float) -> Time | float:
        if isinstance(other, Time):
            return self.base / other.base
        return Time(self.base / other) if isinstance(other, int | float) else NotImplemented


class Rate(_Quantity):
    """Bytes a second, one direction of one rank's link."""

    __slots__ = ()

    @classmethod
    def from_gb_per_s(cls, value: float) -> Self:
        """From GB/s, 1e9 bytes a second."""
        return cls(value * GB)

    @classmethod
    def from_gbit_per_s(cls, value: float) -> Self:
        """From Gbit/s, 1e9 bits a second: what links are sold by."""
        return cls(value * GB / BITS_A_BYTE)

    @property
    def gb_per_s(self) -> float:
        """In GB/s, 1e9 bytes a second."""
        return self.base / GB

    def during(self, time: Time) -> Size:
        """What passes in that time."""
        return Size(self.base * time.base)


class Size(_Quantity):
    """An amount of data."""

    __slots__ = ()

    @classmethod
    def from_bytes(cls, value: float) -> Self:
        """From bytes."""
        return cls(value)

    @classmethod
    def from_mib(cls, value: float) -> Self:
        """From MiB, 2**20 bytes."""
        return cls(value * MIB)

    @property
    def bytes(self) -> float:
        """In bytes."""
        return self.base

    @property
    def mb(self) -> float:
        """In MB, 1e6 bytes."""
        return self.base / 1e6

    @property
    def mib(self) -> float:
        """In MiB, 2**20 bytes."""
        return self.base / MIB

    @property
    def gib(self) -> float:
        """In GiB, 2**30 bytes."""
        return self.base / GIB

    @overload
    def __truediv__(self, other: Rate) -> Time: ...
    @overload
    def __truediv__(self, other: Size) -> float: ...
    @overload
    def __truediv__(self, other: float) -> Size: ...
    def __truediv__(self, other: Rate | Size | float) -> Time | Size | float:
        if isinstance(other, Rate):
            return Time(self.base / other.base)
        if isinstance(other, Size):
            return self.base / other.base
        return Size(self.base / other) if isinstance(other, int | float) else NotImplemented


ZERO_TIME = Time(0.0)
