"""How time and memory of an audit grow with the ranks and with the bytes of one trace, up to 1,024 ranks and 2 GB.

    python -m benchmarks.ranks --cache ~/scale --gigabytes 0.5,2

Simulates a job at each size (16 collectives x 3 steps a rank, one rank 20 ms late in each step) and grows a real trace, once
each into the cache. Then `stepscope audit` runs on each in a process of its own. Wall time counts from start to exit; memory
is the peak of what all processes of the run held together (proportional set size, sampled). Checks that the late rank is
named, and writes README.md, study.json and curves into --out. The traces take about 70 MB at 1,024 ranks, and 85 MB a gigabyte.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from statistics import median

import msgspec

from benchmarks.grow import grow
from benchmarks.ranks_page import page, pictures
from benchmarks.sources import DEFAULT_SOURCE
from stepscope.audit.result import Audit
from stepscope_workloads.simulate import Fabric, Job, Simulation, parse, uniform

COLLECTIVES, STEPS, LATE_MS = 16, 3, 20
_US = 1000
_LAYER = 2_000_000
"""Elements: 8 MB of gradient, a bucket of its own."""
_POLL_S = 0.02


@dataclass(frozen=True, slots=True)
class Case:
    """What one audit took. seconds, cpu_seconds: medians over the runs. peak_mb: the largest of them, in 1e6 bytes."""

    name: str
    ranks: int
    trace_bytes: int
    """As the files are stored."""
    text_bytes: int
    """Unzipped."""
    seconds: float
    cpu_seconds: float
    peak_mb: float
    late_rank_named: bool | None
    """None where no rank was made late."""


def main(argv: Sequence[str] | None = None) -> int:
    """Measure every size, write the study; 1 where a late rank was not named."""
    args = _parser().parse_args(argv)
    cases = []
    for ranks in args.ranks:
        folder = _made(args.cache / f"ranks-{ranks}", partial(_simulate, ranks))
        cases.append(_measured(f"{ranks:,} ranks", ranks, sorted(folder.glob("*.gz")), args))
    for gigabytes in args.gigabytes:
        folder = _made(args.cache / f"gigabytes-{gigabytes:g}", partial(_grown, args.source, gigabytes))
        cases.append(_measured(f"one trace of {gigabytes:g} GB", 1, sorted(folder.glob("*.gz")), args))
    study = {
        "command": ["python", "-m", "benchmarks.ranks", *(sys.argv[1:] if argv is None else argv)],
        "cores": len(os.sched_getaffinity(0)),
        "engine": args.engine,
        "runs": args.runs,
        "cases": [asdict(case) for case in cases],
    }
    args.out.mkdir(parents=True, exist_ok=True)
    (args.out / "study.json").write_text(json.dumps(study, indent=1) + "\n", encoding="utf-8")
    (args.out / "README.md").write_text(page(study), encoding="utf-8")
    for name, picture in pictures(study):
        (args.out / name).write_text(picture, encoding="utf-8")
    print(f"Wrote {args.out}")
    return int(any(case.late_rank_named is False for case in cases))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.ranks",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--ranks", type=_numbers, default=[1, 8, 64, 256, 1024], metavar="N,...")
    parser.add_argument(
        "--gigabytes",
        type=_sizes,
        default=[],
        metavar="G,...",
        help="of text, one trace each; none without it",
    )
    parser.add_argument(
        "--source", type=Path, default=DEFAULT_SOURCE, help="a real trace to grow (default: %(default)s)"
    )
    parser.add_argument("--runs", type=int, default=3, help="audits of each size (default: 3)")
    parser.add_argument("--engine", default="local", help="as `stepscope audit --engine` (default: local)")
    parser.add_argument(
        "--cache",
        type=Path,
        default=Path(tempfile.gettempdir()) / "stepscope-benchmarks",
        help="folder for the traces",
    )
    parser.add_argument("--out", type=Path, default=Path("reports/gallery/scale"))
    return parser


def _numbers(text: str) -> list[int]:
    return [int(number) for number in text.split(",") if number]


def _sizes(text: str) -> list[float]:
    return [float(number) for number in text.split(",") if number]


def _made(folder: Path, make: Callable[[Path], None]) -> Path:
    """The folder, filled if it is not there yet; a half-filled one is never taken for a full one."""
    if not folder.exists():
        draft = folder.with_name(f"{folder.name}.part")
        shutil.rmtree(draft, ignore_errors=True)  # of a call that was broken off
        draft.mkdir(parents=True)
        print(f"making {folder} ...", file=sys.stderr)
        make(draft)
        draft.rename(folder)
    return folder


def late_rank(ranks: int) -> int:
    """Which rank of a job is made late."""
    return ranks // 3


def _simulate(ranks: int, folder: Path) -> None:
    causes = (parse(f"straggler:rank={late_rank(ranks)},ms={LATE_MS}"),) if ranks > 1 else ()
    job = Job(
        model=uniform(COLLECTIVES, 400 * _US, _LAYER, 2, 800 * _US, 0),
        ranks=ranks,
        steps=STEPS,
        bucket_cap=4 * _LAYER // 2,
        fabric=Fabric(fixed=1200 * _US),
        causes=causes,
    )
    for rank, document in enumerate(Simulation(job).documents()):
        path = folder / f"rank{rank}.1.pt.trace.json.gz"
        path.write_bytes(gzip.compress(json.dumps(document).encode(), 1))


def _grown(source: Path, gigabytes: float, folder: Path) -> None:
    grow(source, folder / "rank0.1.pt.trace.json.gz", round(gigabytes * 1e9))


def _measured(name: str, ranks: int, files: Sequence[Path], args: argparse.Namespace) -> Case:
    runs = []
    with tempfile.TemporaryDirectory() as folder:
        audit = Path(folder) / "audit.json"
        command = [sys.executable, "-m", "stepscope", "audit", str(files[0].parent), "--engine", args.engine]
        for number in range(args.runs):
            print(f"{name}: run {number + 1}", file=sys.stderr)
            runs.append(_run([*command, "-o", os.devnull, "--json", str(audit), "--force"]))
        named = _names_late_rank(audit, ranks) if ranks > 1 else None
    case = Case(
        name=name,
        ranks=ranks,
        trace_bytes=sum(file.stat().st_size for file in files),
        text_bytes=sum(map(_text_bytes, files)),
        seconds=median(seconds for seconds, _, _ in runs),
        cpu_seconds=median(cpu for _, cpu, _ in runs),
        peak_mb=max(peak for _, _, peak in runs),
        late_rank_named=named,
    )
    print(
        f"{name}: {case.seconds:.1f} s, {case.cpu_seconds:.1f} s of CPU, {case.peak_mb:,.0f} MB, late rank named: {named}"
    )
    return case


def _names_late_rank(audit: Path, ranks: int) -> bool:
    """Whether both the table of stragglers and the findings name the rank that is late, before any other."""
    found = msgspec.json.decode(audit.read_bytes(), type=Audit)
    findings = [finding.ranks for finding in found.findings if finding.cause == "straggler"]
    return findings == [[late_rank(ranks)]] and found.stragglers[0]["rank"] == late_rank(ranks)


def _text_bytes(file: Path) -> int:
    with gzip.open(file) as text:
        return sum(len(block) for block in iter(lambda: text.read(1 << 20), b""))


def _run(command: Sequence[str]) -> tuple[float, float, float]:
    """Wall and CPU seconds of a command with all that it starts, and the peak of their memory together in MB."""
    began = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    peak = 0
    while True:
        peak = max(peak, sum(map(_held, _tree(process.pid))))
        found, status, usage = os.wait4(process.pid, os.WNOHANG)
        if found:
            break
        time.sleep(_POLL_S)
    seconds = time.perf_counter() - began
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command)
    return seconds, usage.ru_utime + usage.ru_stime, peak / 1e6


def _tree(pid: int) -> Iterator[int]:
    """A process and all that it started."""
    yield pid
    for task in _lines(Path(f"/proc/{pid}/task"), lambda folder: [child.name for child in folder.iterdir()]):
        file = Path(f"/proc/{pid}/task/{task}/children")
        for child in _lines(file, lambda file: file.read_text().split()):
            yield from _tree(int(child))


def _held(pid: int) -> int:
    """Bytes of memory that a process holds, its share of what several hold."""
    lines = _lines(Path(f"/proc/{pid}/smaps_rollup"), lambda file: file.read_text().splitlines())
    return next((int(line.split()[1]) << 10 for line in lines if line.startswith("Pss:")), 0)


def _lines(path: Path, read: Callable[[Path], list[str]]) -> list[str]:
    """What is read of /proc; nothing of a process that has gone."""
    try:
        return read(path)
    except OSError:
        return []


if __name__ == "__main__":
    sys.exit(main())
