"""How fast and in how much memory large traces are read and audited, beside peers and a floor.

    python -m benchmarks --tracelens ~/TraceLens --size-mb 0,200 --page reports/gallery/speed

Without --source: a public trace of a device, without Python stacks and with them. Each is measured as it is (0) and grown to
each size. Contestants run in turns, each run in a process of its own; one that is not installed is left out. Wall time counts
from start to exit; CPU time and peak memory include the processes it starts. Fails where stepscope is over its budget of
times the floor in every round (benchmarks/budget.py). TraceLens is on no package index (the package of that name there is
another): name a checkout.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import platform
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.budget import over_budget
from benchmarks.contest import OURS, Contestant, compete, warm_up
from benchmarks.sources import DEFAULT_SOURCE, measured, with_stacks
from benchmarks.speed_page import Contest, page, section


def main(argv: list[str] | None = None) -> int:
    """Measure and print; exit code 1 where something is over its budget, 2 where there is nothing to measure."""
    args = _parser().parse_args(argv)
    machine = _machine()
    try:
        sources = args.source or _default_sources(args.cache)
        traces = [measured(source, size, args.cache) for size in args.size_mb for source in sources]
    except (ValueError, OSError, subprocess.CalledProcessError) as error:
        print(f"nothing to measure: {error}", file=sys.stderr)
        return 2
    ready = warm_up(_contestants(args), min(sources, key=lambda file: file.stat().st_size), args.timeout)
    contests: list[Contest] = []
    for trace in traces:
        print(trace.name, file=sys.stderr)
        contest = Contest(trace, compete(ready, trace.path, args.runs, args.peer_runs, args.timeout))
        if failure := contest.contestants[0].failure:
            print(f"the floor could not be measured: {failure}", file=sys.stderr)
            return 2
        print("\n".join(section(contest)), flush=True)
        contests.append(contest)
    if args.page:
        _write(args.page, contests, _command(args), machine)
    regressions = [line for one in contests if one.judged for line in over_budget(one.contestants)]
    for line in regressions:
        print(line, file=sys.stderr)
    return int(bool(regressions))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--source",
        type=Path,
        action="append",
        metavar="TRACE",
        help="a real trace to measure; may be repeated (default: a public one, and the same with Python stacks)",
    )
    parser.add_argument(
        "--size-mb",
        type=_sizes,
        default=[200],
        metavar="N,...",
        help="sizes to grow each to, unzipped; 0 is the real trace as it is (default: 200)",
    )
    parser.add_argument("--runs", type=int, default=5, help="runs of each contestant (default: 5)")
    parser.add_argument(
        "--peer-runs",
        type=int,
        default=2,
        help="runs of each peer, which are slow; 0 leaves them out (default: 2)",
    )
    parser.add_argument(
        "--peer-python",
        metavar="PYTHON",
        help="interpreter of an environment with the peers, and pandas, tqdm and orjson for TraceLens (default: this one)",
    )
    parser.add_argument("--tracelens", type=Path, metavar="CHECKOUT", help="checkout of AMD's TraceLens")
    parser.add_argument(
        "--cache",
        type=Path,
        default=Path(tempfile.gettempdir()) / "stepscope-benchmarks",
        help="folder for traces that are made (default: %(default)s)",
    )
    parser.add_argument(
        "--timeout", type=int, default=600, help="seconds after which a run is ended (default: 600)"
    )
    parser.add_argument("--page", type=Path, metavar="DIR", help="write README.md and study.json there")
    return parser


def _sizes(text: str) -> list[int]:
    return [int(size) for size in text.split(",")]


def _default_sources(cache: Path) -> list[Path]:
    if not DEFAULT_SOURCE.is_file():
        raise FileNotFoundError(f"{DEFAULT_SOURCE}: no such trace; give a real one with --source")
    return [DEFAULT_SOURCE, with_stacks(DEFAULT_SOURCE, cache)]


def _contestants(args: argparse.Namespace) -> list[Contestant]:
    """Ours, and the peers that are at hand."""
    found = [Contestant(name, sys.executable) for name in OURS]
    if not args.peer_runs:
        return found
    python = args.peer_python or sys.executable
    found += [
        Contestant(name, python)
        for name, module in {"hta": "hta", "tb_profiler": "torch_tb_profiler"}.items()
        if args.peer_python or importlib.util.find_spec(module)
    ]
    if args.tracelens:
        path = args.tracelens.resolve()
        found.append(Contestant("tracelens", python, str(path), revision(path)))
    return found


def revision(checkout: Path) -> str:
    """The commit that a checkout is of, of its own repository and not of one around it."""
    git = ("git", "-C", str(checkout), "rev-parse", "--show-toplevel", "--short=12", "HEAD")
    told = subprocess.run(git, capture_output=True, text=True, check=False).stdout.split("\n")
    return told[1] if len(told) > 2 and Path(told[0]) == checkout else "of unknown revision"


def _machine() -> str:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return f"Python {platform.python_version()}, {cores} cores, load average before {os.getloadavg()[0]:.1f}"


def _command(args: argparse.Namespace) -> str:
    """What makes the same page elsewhere: without the places where this machine has its files."""
    sources = [word for source in args.source or () for word in ("--source", source.name)]
    options = {"--size-mb": args.size_mb, "--runs": [args.runs], "--peer-runs": [args.peer_runs]}
    numbers = [word for name, values in options.items() for word in (name, ",".join(map(str, values)))]
    checkout = ["--tracelens", "CHECKOUT"] if args.tracelens else []
    page_folder = args.page.name if args.page.is_absolute() else str(args.page)
    return shlex.join(["python", "-m", "benchmarks", *sources, *numbers, *checkout, "--page", page_folder])


def _write(folder: Path, contests: list[Contest], command: str, machine: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    study = {"command": command, "machine": machine, "traces": [contest.study() for contest in contests]}
    (folder / "study.json").write_text(json.dumps(study, indent=1) + "\n", encoding="utf-8")
    (folder / "README.md").write_text(page(contests, command, machine), encoding="utf-8")
    print(f"Wrote {folder}")


if __name__ == "__main__":
    sys.exit(main())
