"""The inputs of `stepscope cost` from its options, a calibration and a recorded run: each from the first of them that has it."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from math import ceil
from typing import TYPE_CHECKING, Any

from stepscope.budget.links import Link, Node
from stepscope.budget.quantities import ZERO_TIME, Rate, Size, Time
from stepscope.budget.setting import TYPICAL_NODE, Evidence, Origin, Setting
from stepscope.errors import InputError

if TYPE_CHECKING:
    from stepscope.budget.calibrated import Model
    from stepscope.budget.measured import Calibration
    from stepscope.budget.recorded import Recorded

MOST_BUCKETS = 8
"""Sizes of a run that are tabulated; every one of them is in the comparison."""

LEAST_CAP = Size.from_mib(1)
"""DDP's own cap of the first bucket. Smaller ones are what the last parameters leave over, and no cap to try."""

FIELDS = {
    "gpus": "ranks",
    "bw": "rate",
    "latency": "latency",
    "params": "parameters",
    "step_ms": "compute",
    "bytes_per_param": "bytes_per_parameter",
    "backward_share": "backward_share",
    "accumulate": "accumulate",
    "zero": "zero",
    "buckets": "buckets",
    "gpus_per_node": "node",
    "intra_bw": "node_rate",
    "intra_latency": "node_latency",
}
"""Options, and the name of what each sets in `Setting.origins`."""

NEEDED = ("gpus", "bw", "latency", "params", "step_ms")


@dataclass(frozen=True)
class Sources:
    """What there is beside the options; file is where the calibration was read from."""

    calibration: Calibration | None = None
    file: str = ""
    recorded: Recorded | None = None

    def model(self, args: argparse.Namespace, ranks: int) -> Model | None:
        """The times of collectives by options and calibration; None where neither gives alpha and B."""
        from stepscope.budget.calibrated import given_model, measured_model

        latency = None if args.latency is None else Time.from_us(args.latency)
        rate = None if args.bw is None else Rate.from_gb_per_s(args.bw)
        if latency is not None and rate is not None:
            return given_model(Link(latency, rate))
        if self.calibration is None:
            return None
        return measured_model(self.calibration, ranks, latency=latency, rate=rate)


@dataclass
class _Inputs:
    """Fields of a setting with their origins, as they are found."""

    values: dict[str, Any] = field(default_factory=dict)
    origins: dict[str, Origin] = field(default_factory=dict)
    evidence: dict[str, Evidence] = field(default_factory=dict)

    def give(self, name: str, value: object, origin: Origin, evidence: Evidence | None = None) -> None:
        """Later ones replace earlier ones; None gives nothing."""
        if value is None:
            return
        self.values[name], self.origins[name] = value, origin
        self.evidence.pop(name, None)
        if evidence is not None:
            self.evidence[name] = evidence


def setting_of(args: argparse.Namespace, sources: Sources | None = None) -> Setting:
    """All inputs with their origins. Raises InputError for what nobody gives and nobody can assume."""
    sources = sources or Sources()
    found = _Inputs(origins=dict.fromkeys(FIELDS.values(), Origin.ASSUMED))
    if sources.recorded is not None:
        _from_run(found, sources.recorded, args)
    ranks = args.gpus or found.values.get("ranks")
    model = None if ranks is None else sources.model(args, ranks)
    if model is not None and sources.calibration is not None:
        _from_calibration(found, sources.calibration, model, sources.file)
    _from_options(found, args)
    measured = ("bw", "latency") if sources.calibration is not None else ()
    missing = [
        f"--{name.replace('_', '-')}"
        for name in NEEDED
        if FIELDS[name] not in found.values and name not in measured
    ]
    if missing:
        raise InputError(
            f"the following arguments are required: {', '.join(missing)}; --fabric and --run can stand for some "
            "(see `stepscope cost --help`)"
        )
    if not found.values["latency"].base:
        raise InputError(
            f"{sources.file} leaves no latency above 0; calibrate from smaller sizes, or give --latency"
        )
    link = Link(found.values.pop("latency"), found.values.pop("rate"), found.values.pop("floor", ZERO_TIME))
    one_link = _one_link(args, sources, found.values["ranks"])
    return Setting(
        **found.values,
        link=link,
        node=_node(args),
        sequence=() if model is None else _sequence(args, sources.recorded),
        model=model,
        one_link=one_link,
        scale_to=args.scale_to or (),
        batch=args.batch,
        critical_batch=args.critical_batch,
        origins=found.origins,
        evidence=found.evidence,
    )


def _from_run(found: _Inputs, recorded: Recorded, args: argparse.Namespace) -> None:
    parameters = args.params * 1e9 if args.params is not None else recorded.parameters
    share = None if recorded.window is None else recorded.window / recorded.compute
    told = {
        "ranks": recorded.ranks,
        "parameters": recorded.parameters,
        "bytes_per_parameter": None if parameters is None else recorded.message.bytes / parameters,
        "compute": recorded.compute / (args.accumulate or 1),
        "backward_share": share if share is not None and 0 < share < 1 else None,
        "zero": recorded.zero,
        "buckets": caps(size for _, size in recorded.sequence),
    }
    for name, value in told.items():
        found.give(name, value, Origin.RUN, Evidence(recorded.run))


def caps(sizes: Iterable[Size]) -> tuple[Size, ...]:
    """The sizes to tabulate: those that are caps and cut the gradients differently, at most `MOST_BUCKETS` of them."""
    known = sorted(sizes)
    message = sum(known, Size(0.0))
    told = [*{ceil(message / size): size for size in known if size >= LEAST_CAP}.values()] or known[-1:]
    picks = {round(place * (len(told) - 1) / (MOST_BUCKETS - 1)) for place in range(MOST_BUCKETS)}
    return tuple(told[place] for place in sorted(picks))


def _sequence(args: argparse.Namespace, recorded: Recorded | None) -> tuple[tuple[str, Size], ...]:
    """The recorded gradient collectives, unless options make it another message or the model has no time for one of them."""
    from stepscope.budget.calibrated import PASSES

    if recorded is None or any(
        vars(args)[name] is not None for name in ("params", "bytes_per_param", "zero")
    ):
        return ()
    return recorded.sequence if all(kind in PASSES for kind, _ in recorded.sequence) else ()


def _one_link(args: argparse.Namespace, sources: Sources, ranks: int) -> str | None:
    """Why no faster link inside a node is to be assumed; None where nothing speaks against it, or the options describe one."""
    if any(vars(args)[name] is not None for name in ("gpus_per_node", "intra_bw", "intra_latency")):
        return None
    recorded, made = sources.recorded, sources.calibration
    if (recorded is not None and recorded.on_cpu) or (made is not None and made.device.startswith("cpu")):
        return "the ranks are on CPUs, and no other link among them was measured"
    if made is not None and made.emulated is None and len(made.hosts) == 1 and ranks <= made.world_size:
        return "all ranks were calibrated within one host: this is the link inside it"
    return None


def warning(args: argparse.Namespace, sources: Sources) -> str | None:
    """What is to be said before everything else: that the calibration won't do, unless options stand for all of it."""
    made = sources.calibration
    if made is None or made.unusable is None or (args.bw is not None and args.latency is not None):
        return None
    from stepscope.budget.measured import not_usable

    return not_usable(made.unusable, sources.file)


def _from_calibration(found: _Inputs, made: Calibration, model: Model, file: str) -> None:
    terms = model.base
    found.give("latency", terms.alpha, Origin.MEASURED, Evidence(file, made.alpha_us_interval))
    found.give("rate", terms.rate, Origin.MEASURED, Evidence(file, made.bandwidth_gb_per_s_interval))
    found.give("floor", terms.floor, Origin.MEASURED, Evidence(file))
    found.give("valid", terms.valid, Origin.MEASURED, Evidence(file))


def _from_options(found: _Inputs, args: argparse.Namespace) -> None:
    given = {
        "ranks": args.gpus,
        "rate": None if args.bw is None else Rate.from_gb_per_s(args.bw),
        "latency": None if args.latency is None else Time.from_us(args.latency),
        "parameters": None if args.params is None else args.params * 1e9,
        "compute": None if args.step_ms is None else Time.from_ms(args.step_ms),
        "bytes_per_parameter": args.bytes_per_param,
        "backward_share": args.backward_share,
        "accumulate": args.accumulate,
        "zero": args.zero,
        "buckets": None if args.buckets is None else tuple(map(Size.from_mib, args.buckets)),
    }
    for name, value in given.items():
        found.give(name, value, Origin.GIVEN)
    for option in ("gpus_per_node", "intra_bw", "intra_latency"):
        if vars(args)[option] is not None:
            found.origins[FIELDS[option]] = Origin.GIVEN


def _node(args: argparse.Namespace) -> Node:
    typical = TYPICAL_NODE.link
    latency = typical.latency if args.intra_latency is None else Time.from_us(args.intra_latency)
    rate = typical.rate if args.intra_bw is None else Rate.from_gb_per_s(args.intra_bw)
    return Node(args.gpus_per_node or TYPICAL_NODE.ranks, Link(latency, rate))


def remarks(args: argparse.Namespace, sources: Sources, ranks: int) -> Iterator[str]:
    """What overrides what, and where a calibration was measured under other conditions than it is used for."""
    recorded, made = sources.recorded, sources.calibration
    if recorded is not None:
        over = [f"--{name.replace('_', '-')}" for name in _RECORDED if vars(args)[name] is not None]
        if over:
            yield f"{', '.join(over)}: given on the command line, and not taken from {recorded.run}."
        yield from recorded.remarks
    if made is None:
        return
    for option, measured in (
        ("bw", f"{made.bandwidth_gb_per_s or 0:.4g} GB/s"),
        ("latency", f"{made.alpha_us or 0:.4g} us"),
    ):
        if vars(args)[option] is not None:
            yield f"--{option} overrides the {measured} that {sources.file} measured."
    if args.bw is not None and args.latency is not None:
        return
    if ranks != made.world_size:
        yield (
            f"{sources.file} was measured on {made.world_size} ranks and serves {ranks} here: alpha is a hop's and B a link's, "
            "but other links may be in the way of more ranks. What short operations take at least is left out."
        )
    if recorded is not None:
        yield from _other_conditions(recorded, made, sources.file)


_RECORDED = ("gpus", "params", "step_ms", "bytes_per_param", "backward_share", "zero", "buckets")


def _other_conditions(recorded: Recorded, made: Calibration, file: str) -> Iterator[str]:
    if recorded.emulated != (made.emulated is not None):
        first, second = ("an emulated fabric", "none") if made.emulated else ("no emulated fabric", "one")
        yield f"{file} was measured on {first} and {recorded.run} recorded on {second}: two networks."
    if recorded.backend is not None and made.backend not in recorded.backend:
        yield f"{file} was measured with {made.backend} and {recorded.run} recorded with {recorded.backend}."
