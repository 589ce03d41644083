"""What the fault matrix runs: the faults, the sizes, and the order that puts every fault beside a clean run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, islice
from pathlib import Path

WARMUP, STEPS, TRAINED = 4, 10, 32
"""Steps before the recorded ones, recorded ones, and the most that are trained: `--stop` ends a run soon after them."""
SEEDS = (0, 1, 2)
HELD = Path(__file__).with_name("held.py")


@dataclass(frozen=True)
class Setting:
    """A model and its bucket size."""

    preset: str
    cap_mb: str
    batch_size: str

    @property
    def name(self) -> str:
        """As the folders carry it."""
        return f"{self.preset}-{self.cap_mb}mb"

    @property
    def flags(self) -> tuple[str, ...]:
        """For the workload."""
        return ("--preset", self.preset, "--bucket-cap-mb", self.cap_mb, "--batch-size", self.batch_size)


SETTINGS = (Setting("1m", "0.5", "8"), Setting("3m", "1", "8"))


@dataclass(frozen=True)
class Injected:
    """A fault as the workload is told it, and the cause that an audit must name first."""

    name: str
    fault: str
    """May say {two_buckets} or {four_buckets}: twice and four times the setting's bucket size in MiB."""
    cause: str
    flags: tuple[str, ...] = ()
    """For the clean run as well; as the fault."""
    fabric: str | None = None
    """A fabric of the fault's own; the clean run is on the usual one."""
    record: tuple[int, int] = (WARMUP, STEPS)
    apart: str | None = None
    """What else the clean run differs in, if it does: price and difference then need not agree."""


DEEP_AND_THIN = ("--layers", "64", "--embed", "16", "--heads", "2", "--batch-size", "1")
"""A model of many small parameters and a short backward: a parameter is never split, so only its buckets can be tiny."""

FAULTS = (
    Injected("one-bucket", "one-bucket", "bucket-too-large"),
    Injected("find-unused", "find-unused", "find-unused-parameters"),
    Injected("reduce-by-hand", "reduce-by-hand", "reduced-outside-backward"),
    Injected("clip-before-reduce", "clip-before-reduce", "reduced-outside-backward"),
    Injected("waiting-hook", "waiting-hook", "wait-edge-in-backward"),
    Injected("straggler-forward", "straggler:rank=0,ms=80,phase=forward", "straggler"),
    Injected("straggler-backward", "straggler:rank=1,ms=80,phase=backward", "straggler"),
    Injected("input-skew", "straggler:rank=1,ms=80,phase=input", "input-skew"),
    Injected("metrics", "metrics:count=100", "extra-collectives"),
    Injected("metrics-within", "metrics:count=25,within=true", "extra-collectives"),
    Injected("buffers", "buffers:mb=4", "forward-collectives"),
    Injected("late-parameter", "late-parameter", "late-parameter"),
    Injected(
        "large-embedding",
        "large-embedding:mb={four_buckets}",
        "oversized-last-bucket",
        apart="it has no such embedding",
    ),
    Injected("zero-1", "zero-1", "zero1-parameter-broadcast", apart="its optimizer updates every parameter"),
    Injected("slow-link", "none", "link-bound", fabric="200mbit"),
    Injected(
        "sync-every-micro-batch",
        "sync-every-micro-batch",
        "accumulation-without-no-sync",
        flags=("--accumulate", "2", "--bucket-cap-mb", "{two_buckets}"),
    ),
    Injected("tiny-buckets", "tiny-buckets:mb=0.001", "bucket-too-small", flags=DEEP_AND_THIN),
    Injected(
        "no-warm-up",
        "none",
        "warm-up-step",
        flags=("--static-graph",),
        record=(1, 1),
        apart="later steps need no set-up either",
    ),
)
"""Those with the same flags are neighbours: they share clean runs."""


@dataclass(frozen=True)
class Run:
    """One run of the matrix: with a fault, or the clean run of one or two faults."""

    label: str
    injected: Injected
    setting: Setting
    seed: int
    clean: bool

    @property
    def name(self) -> str:
        """Of its folder."""
        return f"{self.label}-{self.setting.name}-{self.seed}"

    def flags(self, fabric: str, share: str) -> list[str]:
        """For `stepscope run`; fabric: rate of the links, or none; share: of a CPU for each rank's training thread, or none."""
        fault = self.injected
        rate = fabric if self.clean or fault.fabric is None else fault.fabric
        warmup, steps = (WARMUP, STEPS) if self.clean else fault.record
        return [
            *("--nproc-per-node", "2", "--stop", "--warmup", str(warmup), "--steps", str(steps)),
            *(() if fabric == "none" else ("--fabric", rate)),
            *(() if share == "none" else (str(HELD), share)),
            *("gpt-faults", "--fault", "none" if self.clean else self._fill(fault.fault)),
            *("--steps", str(TRAINED), "--seed", str(self.seed), *self.setting.flags),
            *map(self._fill, fault.flags),
        ]

    def _fill(self, text: str) -> str:
        cap = float(self.setting.cap_mb)
        return text.format(two_buckets=2 * cap, four_buckets=4 * cap)


@dataclass(frozen=True)
class Pair:
    """A run with a fault, and the clean run right before or after it."""

    broken: Run
    clean: Run


def pairs(faults: Sequence[Injected], settings: Sequence[Setting], seeds: Sequence[int]) -> Iterator[Pair]:
    """Every fault, the ones of a seed together, so that a matrix that is stopped holds whole seeds."""
    for seed in seeds:
        for setting in settings:
            for _, same_flags in groupby(faults, key=lambda injected: injected.flags):
                for two in _in_twos(same_flags):
                    clean = Run(f"clean-of-{two[0].name}", two[0], setting, seed, clean=True)
                    for injected in two:
                        yield Pair(Run(injected.name, injected, setting, seed, clean=False), clean)


def in_order(found: Sequence[Pair]) -> list[Run]:
    """The runs as they are made: a fault, the clean run, the other fault that shares it."""
    return list(dict.fromkeys(run for pair in found for run in (pair.broken, pair.clean)))


def _in_twos(faults: Iterator[Injected]) -> Iterator[tuple[Injected, ...]]:
    while two := tuple(islice(faults, 2)):
        yield two
