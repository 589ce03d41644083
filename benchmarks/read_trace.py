"""How fast and in how much memory a large trace is read and audited, beside its peers and a floor.

    python -m benchmarks --source trace.json.gz --hta-python ~/hta/bin/python --json figures.json

A trace of the wanted size is grown from the given one. Then each contestant runs in a process of its own, in turns, so
that a busy machine is unfair to all of them alike. Wall time counts from start to exit of the process, interpreter and
imports included; CPU time and peak resident size include the processes it starts. Fails where stepscope takes more times the
floor than its budget allows. TraceLens is on no package index (the package of that name there is another): name a checkout.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median
from typing import BinaryIO

from benchmarks.grow import grow

_REPOSITORY = Path(__file__).resolve().parents[1]
DEFAULT_SOURCE = _REPOSITORY.parent / "shared" / "traces" / "hta_resnet_ddp_a100" / "nccl_data.json.gz"
_SCRIPT = Path(__file__).with_name("contestants.py")
_UNSTEADY = 1.25
"""Slowest over fastest run from which the figures are said to be unsteady."""

_LABELS = {
    "floor": "floor: inflate, count events",
    "read": "stepscope: read",
    "overlap": "stepscope: load, overlap",
    "audit": "stepscope: whole audit",
    "hta": "HolisticTraceAnalysis: load, overlap",
    "tracelens": "TraceLens: load, breakdown",
}


_OURS = ("floor", "read", "overlap", "audit")
BUDGET = {"read": 3.0, "overlap": 3.5, "audit": 4.0}
"""Most wall time, in that of the floor, which a busy or another machine slows down alike: more is a regression."""


@dataclass(slots=True)
class Contestant:
    """One program and its runs."""

    name: str
    python: str
    path: str | None = None
    """What goes on the import path."""
    seconds: list[float] = field(default_factory=list)
    cpu_seconds: list[float] = field(default_factory=list)
    """Of all its threads and processes."""
    peak_mb: list[float] = field(default_factory=list)
    found: str = ""
    failure: str | None = None

    def run(self, trace: Path, seconds: int) -> None:
        """Run once; a failure is kept and ends this contestant's part."""
        environment = dict(os.environ)
        if self.path:
            environment["PYTHONPATH"] = self.path
        with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
            began = time.perf_counter()
            process = subprocess.Popen(
                [self.python, str(_SCRIPT), self.name, str(trace)],
                stdout=output,
                stderr=errors,
                env=environment,
            )
            limit = threading.Timer(seconds, process.kill)
            limit.start()
            _, status, usage = os.wait4(process.pid, 0)
            took = time.perf_counter() - began
            limit.cancel()
            process.returncode = os.waitstatus_to_exitcode(status)
            if process.returncode:
                self.failure = _last_line(errors) or f"exit code {process.returncode}"
                return
            peak, _, self.found = _last_line(output).partition(" ")
        self.seconds.append(took)
        self.cpu_seconds.append(usage.ru_utime + usage.ru_stime)
        self.peak_mb.append(int(peak) / 1e6)


def _last_line(file: BinaryIO) -> str:
    file.seek(0)
    lines = file.read().decode(errors="replace").strip().splitlines()
    return lines[-1] if lines else ""


def _contestants(args: argparse.Namespace) -> list[Contestant]:
    found = [Contestant(name, sys.executable) for name in _OURS]
    peer_python = args.hta_python or sys.executable
    if args.hta_python or importlib.util.find_spec("hta"):
        found.append(Contestant("hta", peer_python))
    if args.tracelens:
        found.append(Contestant("tracelens", peer_python, path=str(args.tracelens)))
    return found


def _grown(source: Path, size: int, folder: Path) -> tuple[Path, int]:
    """The grown trace, from the folder if it was made before, and the bytes it inflates to."""
    folder.mkdir(parents=True, exist_ok=True)
    key = hashlib.sha256(source.read_bytes() + str(size).encode()).hexdigest()[:12]
    trace, note = folder / f"rank0.{key}.pt.trace.json.gz", folder / f"{key}.size"
    if not (trace.exists() and note.exists()):
        print(f"growing {source.name} to {size / 1e6:.0f} MB ...", file=sys.stderr)
        note.write_text(str(grow(source, trace, size)))
    return trace, int(note.read_text())


def _span(values: list[float], unit: str, digits: int) -> str:
    return f"{median(values):.{digits}f} {unit} ({min(values):.{digits}f}..{max(values):.{digits}f})"


def _print_table(contestants: list[Contestant], size: int) -> None:
    floor = median(contestants[0].seconds)
    print(f"{'':38}{'wall':>24}{'CPU':>8}{'MB/s':>7}{'peak memory':>23}{'x floor':>9}")
    for contestant in contestants:
        label = _LABELS[contestant.name]
        if not contestant.seconds:
            print(f"{label:38}  failed: {contestant.failure}")
            continue
        wall = median(contestant.seconds)
        print(
            f"{label:38}{_span(contestant.seconds, 's', 2):>24}{median(contestant.cpu_seconds):6.2f} s{size / 1e6 / wall:7.0f}"
            f"{_span(contestant.peak_mb, 'MB', 0):>23}{wall / floor:9.2f}   {contestant.found}"
        )


def _print_ratios(contestants: list[Contestant]) -> None:
    by_name = {contestant.name: contestant for contestant in contestants if contestant.seconds}
    for peer in ("hta", "tracelens"):
        for mine in ("overlap", "audit"):
            if peer in by_name and mine in by_name:
                times = median(by_name[peer].seconds) / median(by_name[mine].seconds)
                memory = median(by_name[mine].peak_mb) / median(by_name[peer].peak_mb)
                label = _LABELS[peer].partition(":")[0]
                print(
                    f"{_LABELS[mine]}: {times:.1f} times faster than {label}, {memory:.2f} of its peak memory"
                )
    unsteady = [name for name, c in by_name.items() if max(c.seconds) > _UNSTEADY * min(c.seconds)]
    if unsteady:
        print(
            f"Unsteady ({', '.join(unsteady)}): the slowest run took over {_UNSTEADY} times the fastest. "
            "Is the machine busy? Run again with --runs 10."
        )


def over_budget(contestants: list[Contestant]) -> list[str]:
    """A line for each contestant that takes more than its budget, or that failed."""
    floor = median(contestants[0].seconds)
    lines = []
    for one in contestants:
        allowed = BUDGET.get(one.name)
        if allowed is None:
            continue
        if not one.seconds:
            lines.append(f"{_LABELS[one.name]}: failed: {one.failure}")
        elif (times := median(one.seconds) / floor) > allowed:
            lines.append(f"{_LABELS[one.name]}: {times:.2f} times the floor, over its budget of {allowed:g}")
    return lines


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--source",
        type=Path,
        default=DEFAULT_SOURCE,
        help="a real trace to grow from (default: %(default)s)",
    )
    parser.add_argument("--size-mb", type=int, default=200, help="size to grow to, inflated (default: 200)")
    parser.add_argument("--runs", type=int, default=5, help="runs of each contestant (default: 5)")
    parser.add_argument(
        "--peer-runs", type=int, default=2, help="runs of each peer, which are slow (default: 2)"
    )
    parser.add_argument("--hta-python", help="interpreter of an environment with HolisticTraceAnalysis")
    parser.add_argument(
        "--tracelens",
        type=Path,
        metavar="CHECKOUT",
        help="checkout of AMD's TraceLens, run by --hta-python's interpreter",
    )
    parser.add_argument(
        "--cache",
        type=Path,
        default=Path(tempfile.gettempdir()) / "stepscope-benchmarks",
        help="folder for grown traces (default: %(default)s)",
    )
    parser.add_argument(
        "--timeout", type=int, default=600, help="seconds after which a run is ended (default: 600)"
    )
    parser.add_argument("--json", type=Path, help="write the figures there too")
    return parser


def main(argv: list[str] | None = None) -> int:
    """Measure and print; exit code 1 where something is over its budget, 2 where there is no trace to grow from."""
    args = _parser().parse_args(argv)
    if not args.source.is_file():
        print(f"{args.source}: no such trace; give a real one with --source", file=sys.stderr)
        return 2
    try:
        trace, size = _grown(args.source, args.size_mb * 1_000_000, args.cache)
    except (ValueError, OSError) as error:
        print(f"cannot grow a trace: {error}", file=sys.stderr)
        return 2
    contestants = _contestants(args)
    for turn in range(max(args.runs, args.peer_runs)):
        for contestant in contestants:
            runs = args.runs if contestant.name in _OURS else args.peer_runs
            if turn < runs and contestant.failure is None:
                print(f"run {turn + 1}: {_LABELS[contestant.name]}", file=sys.stderr)
                contestant.run(trace, args.timeout)
    if contestants[0].failure:
        print(f"the floor could not be measured: {contestants[0].failure}", file=sys.stderr)
        return 2
    print(
        f"{args.source.name} grown to {size / 1e6:.0f} MB ({trace.stat().st_size / 1e6:.0f} MB gzipped), median (min..max)"
    )
    _print_table(contestants, size)
    _print_ratios(contestants)
    if args.json:
        args.json.write_text(
            json.dumps({"bytes": size, "contestants": [asdict(c) for c in contestants]}, indent=1)
        )
        print(f"Wrote {args.json}")
    regressions = over_budget(contestants)
    for line in regressions:
        print(line, file=sys.stderr)
    return int(bool(regressions))


if __name__ == "__main__":
    sys.exit(main())
